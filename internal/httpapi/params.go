package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// param is one parameter. Query strings and forms have only text; JSON says
// whether it meant text, a number or a truth value.
type param struct {
	name string
	text string
	kind paramKind
}

// params are a request's parameters, each with another name.
type params []param

func (ps params) find(name string) (p param, found bool) {
	i := slices.IndexFunc(ps, func(p param) bool { return p.name == name })
	if i < 0 {
		return param{}, false
	}
	return ps[i], true
}

type paramKind int

const (
	kindText paramKind = iota
	kindNumber
	kindBool
)

// readParams collects the parameters of the query string and of the body,
// which are the same wherever they stand. Each name may be given once in all,
// and only those in accepts.
func readParams(r *http.Request, accepts []string) (params, error) {
	c := collector{accepts: accepts}
	if err := c.pairs(r.URL.RawQuery); err != nil {
		return nil, err
	}
	if body := contentOf(r); len(body) > 0 {
		if err := c.body(r.Header.Values("Content-Type"), body); err != nil {
			return nil, err
		}
	}
	return c.found, nil
}

type collector struct {
	accepts []string
	found   params
}

func (c *collector) body(contentTypes []string, body []byte) error {
	// Many clients name no type for a string that they were given: it is read
	// as a form, as curl would have sent it.
	mediaType, options := typeForm, map[string]string(nil)
	switch {
	case len(contentTypes) == 1 && (contentTypes[0] == typeForm || contentTypes[0] == typeJSON):
		mediaType = contentTypes[0] // as nearly everybody spells them
	case len(contentTypes) > 0:
		var err error
		if mediaType, options, err = mime.ParseMediaType(contentTypes[0]); err != nil || len(contentTypes) > 1 {
			return refuse("unsupported_media_type", "the Content-Type cannot be read")
		}
	}
	if charset, given := options["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return refuse("unsupported_media_type", "the charset must be UTF-8")
	}
	switch mediaType {
	case typeForm:
		if start := bytes.TrimLeft(body, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
			return refuse("invalid_body", "the body looks like JSON but was sent as a form; add the header Content-Type: application/json (curl --json does)")
		}
		return c.pairs(string(body))
	case typeJSON:
		return c.json(body)
	}
	return refuse("unsupported_media_type", "send application/x-www-form-urlencoded or application/json")
}

// pairs reads name=value pairs. A ';' is no separator, as in browsers.
func (c *collector) pairs(text string) error {
	for pair := range strings.SplitSeq(text, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if nameErr != nil || valueErr != nil {
			return refuse("invalid_parameter", "a parameter has a '%' that begins no percent-encoded byte")
		}
		if err := c.add(param{name, value, kindText}); err != nil {
			return err
		}
	}
	return nil
}

// json reads one flat object. encoding/json's own decoding would let repeated
// names win over one another and replace invalid UTF-8.
func (c *collector) json(body []byte) error {
	if !utf8.Valid(body) {
		return refuse("invalid_body", "the JSON is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return refuse("invalid_body", "the body must be one JSON object")
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return malformedJSON
		}
		if seen[name] {
			return repeated(name)
		}
		seen[name] = true
		token, err = d.Token()
		if err != nil {
			return malformedJSON
		}
		p, err := jsonParam(name, token)
		if err != nil {
			return err
		}
		if p == nil {
			err = c.known(name) // null is absent
		} else {
			err = c.add(*p)
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return malformedJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return malformedJSON
	}
	return nil
}

var malformedJSON = refuse("invalid_body", "the JSON is malformed, or something follows it")

// jsonParam returns nil for null.
func jsonParam(name string, token json.Token) (*param, error) {
	switch v := token.(type) {
	case nil:
		return nil, nil
	case string:
		return &param{name, v, kindText}, nil
	case json.Number:
		return &param{name, v.String(), kindNumber}, nil
	case bool:
		return &param{name, fmt.Sprint(v), kindBool}, nil
	}
	return nil, refuseParam("invalid_parameter", name, fmt.Sprintf("%s must be a text, a number, true or false", quoteName(name)))
}

func (c *collector) add(p param) error {
	if err := c.known(p.name); err != nil {
		return err
	}
	if _, again := c.found.find(p.name); again {
		return repeated(p.name)
	}
	c.found = append(c.found, p)
	return nil
}

func (c *collector) known(name string) error {
	if slices.Contains(c.accepts, name) {
		return nil
	}
	takes := "no parameters"
	if len(c.accepts) > 0 {
		takes = "only " + strings.Join(c.accepts, ", ")
	}
	return refuseParam("invalid_parameter", name, fmt.Sprintf("unknown parameter %s: this request takes %s", quoteName(name), takes))
}

func repeated(name string) error {
	return refuseParam("invalid_parameter", name, fmt.Sprintf("%s is given more than once; give it once, in the query string or in the body", quoteName(name)))
}

// quoteName makes a name that the caller chose fit to be told back.
func quoteName(name string) string {
	const most = 40
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%+q", name)
}
