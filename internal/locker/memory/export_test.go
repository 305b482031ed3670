package memory

// Rows returns how many rows the table has, expired ones included.
func (b *Backend) Rows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows.rows)
}
