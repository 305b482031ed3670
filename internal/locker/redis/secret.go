package redis

// Secret returns a user name or a password. It is called for every new
// connection, so that what has been rotated is found.
type Secret func() (string, error)

func (s Secret) read() (string, error) {
	if s == nil {
		return "", nil
	}
	return s()
}
