package locker

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes is the longest key, in bytes of UTF-8.
const MaxKeyBytes = 512

// Key names a lock. It is made by [ParseKey] alone, so that every Key in the
// process is valid and two spellings of one name are one Key.
type Key string

// ErrKeyTooLong is wrapped by ParseKey's error for a key above MaxKeyBytes.
var ErrKeyTooLong = errors.New("key too long")

// ParseKey checks a decoded key and says in its error what is wrong with it.
//
// Braces are refused because Redis Cluster would take what stands between
// them for the hash tag; a leading '#' because the companions of a lock live
// under that name; "." and ".." because proxies and clients clean them away.
func ParseKey(s string) (Key, error) {
	switch {
	case s == "":
		return "", errors.New("the key is empty")
	case len(s) > MaxKeyBytes:
		return "", fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrKeyTooLong, len(s), MaxKeyBytes)
	case !utf8.ValidString(s):
		return "", errors.New("the key is not valid UTF-8")
	case s[0] == '#':
		return "", errors.New("the key begins with '#', which is reserved")
	}
	for i, r := range s {
		switch {
		case r == '{' || r == '}':
			return "", fmt.Errorf("the key has a brace at byte %d", i)
		case unicode.IsControl(r):
			return "", fmt.Errorf("the key has a control character at byte %d", i)
		case unicode.IsSpace(r):
			return "", fmt.Errorf("the key has white space at byte %d", i)
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		switch segment {
		case "":
			return "", errors.New("the key has an empty segment (a leading, trailing or doubled '/')")
		case ".", "..":
			return "", fmt.Errorf("the key has the segment %q", segment)
		}
	}
	return Key(s), nil
}
