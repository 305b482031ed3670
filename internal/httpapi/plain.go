package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// prefers tells whether the caller's Accept header ranks one type above
// another.
func prefers(r *http.Request, this, over string) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	// Nearly everybody takes all types alike.
	return accept != "" && accept != "*/*" && quality(accept, this) > quality(accept, over)
}

// quality returns the weight that an Accept header gives to a type: that of
// the most specific range which covers it.
func quality(accept, mediaType string) float64 {
	major, _, _ := strings.Cut(mediaType, "/")
	best, specific := 0.0, 0
	for part := range strings.SplitSeq(accept, ",") {
		covers, options, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		rank := map[string]int{"*/*": 1, major + "/*": 2, mediaType: 3}[covers]
		if rank == 0 || rank < specific {
			continue
		}
		q := 1.0
		if text, given := options["q"]; given {
			if q, err = strconv.ParseFloat(text, 64); err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
		}
		best, specific = q, rank
	}
	return best
}

// ShellLines turns a JSON object into name=value lines that a POSIX shell may
// evaluate: whatever is in it, nothing of it is executed. Members of nested
// objects get the outer name in front; null is empty. It fails if a name is
// none that a shell variable of ours can have.
func ShellLines(object []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("only objects can be written as lines")
	}
	var out bytes.Buffer
	err := shellObject(&out, d, "")
	return out.Bytes(), err
}

// isShellName tells whether a shell variable may have the name. Capitals are
// refused: PATH and its like are not ours to set.
func isShellName(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func shellObject(out *bytes.Buffer, d *json.Decoder, prefix string) error {
	for {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return nil // the end of the object
		}
		if !isShellName(name) {
			return errors.New("a name is none of a shell variable")
		}
		name = prefix + name
		if token, err = d.Token(); err != nil {
			return err
		}
		if token == json.Delim('{') {
			if err := shellObject(out, d, name+"_"); err != nil {
				return err
			}
			continue
		}
		out.WriteString(name + "=")
		switch v := token.(type) {
		case string:
			out.WriteString("'" + strings.ReplaceAll(v, "'", `'\''`) + "'")
		case json.Number:
			out.WriteString(v.String())
		case bool:
			out.WriteString(strconv.FormatBool(v))
		case nil:
		default:
			return errors.New("lists cannot be written as lines")
		}
		out.WriteByte('\n')
	}
}
