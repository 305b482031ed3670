package locker

// Residue counts what the table still has to do with anything but losses that
// are remembered.
func (l *Locker) Residue() (residue int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, chores := range l.chores {
		residue += len(chores)
	}
	return residue + len(l.queue) + len(l.byID) + len(l.held) + len(l.asking) + l.askCount + len(l.lines)
}

// Remembered counts the endings that are kept for those who ask later, and
// what their bookkeeping holds on to.
func (l *Locker) Remembered() (endings, slots int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endings.forget(l.now())
	return l.endings.count, max(len(l.endings.order), len(l.endings.byKey))
}
