package locker

// Changes returns a channel that is closed when something that List or
// Overview tells of changes for the next time. Ask for it before looking:
// nothing is missed then. What changes by the passing of time alone (a lease
// that is at risk since nothing was heard) is told of by nothing but the clock.
//
// It costs nothing while nobody has asked.
func (l *Locker) Changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news == nil {
		l.news = make(chan struct{})
	}
	return l.news
}

// newsLocked tells those who asked for Changes.
func (l *Locker) newsLocked() {
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
}
