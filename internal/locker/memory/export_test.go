package memory

// Lines returns how many lines the table has, those without a place included.
func (b *Backend) Lines() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lines.lines)
}

// Rows returns how many rows the table has, expired ones included.
func (b *Backend) Rows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows.rows)
}
