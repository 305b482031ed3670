package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Exit codes of a command that could not be started, as a shell gives them.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// StartError says why a command could not be started.
type StartError struct {
	Name string
	Code int // CodeNotExecutable or CodeNotFound
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.Name, e.Err) }

func (e *StartError) Unwrap() error { return e.Err }

func startError(name string, err error) *StartError {
	code := CodeNotExecutable
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		code = CodeNotFound
	}
	if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%w; a script needs a first line such as #!/bin/sh", err)
	}
	return &StartError{Name: name, Code: code, Err: err}
}

// Find returns the path of a program as execvp(3) finds it: a name without a
// slash is looked for in the folders of PATH. The error is a [*StartError].
func Find(name string) (string, error) {
	if name == "" {
		return "", &StartError{Name: name, Code: CodeNotFound, Err: errors.New("the name is empty")}
	}
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", startError(name, err)
		}
		return name, nil
	}
	path, set := os.LookupEnv("PATH")
	if !set {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	var refusal error
	for _, folder := range filepath.SplitList(path) {
		if folder == "" {
			folder = "." // as in a shell
		}
		candidate := folder + "/" + name
		err := executable(candidate)
		if err == nil {
			return candidate, nil
		}
		if errors.Is(err, syscall.EACCES) {
			refusal = err // others may still be better
		}
	}
	if refusal != nil {
		return "", startError(name, refusal)
	}
	return "", &StartError{Name: name, Code: CodeNotFound, Err: errors.New("not found in PATH")}
}

// executable tells why the file cannot be run; nil if it seems that it can.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		var p *os.PathError
		if errors.As(err, &p) {
			return p.Err
		}
		return err
	case !info.Mode().IsRegular(), info.Mode().Perm()&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}
