package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/locksidecar/locksidecar/internal/locker"
)

const (
	leastTTL     = time.Second
	longestHold  = 10 * 365 * 24 * time.Hour // bounds max_hold, so that instants cannot overflow
	ownerMaxLen  = 128                       // characters
	noteMaxLen   = 256
	paramFence   = "fencing_token"
	paramForce   = "force"
	paramAll     = "all"
	paramOwner   = string(locker.ParamOwner)
	paramTTL     = string(locker.ParamTTL)
	paramWait    = string(locker.ParamWait)
	paramBind    = string(locker.ParamBind)
	paramRenew   = string(locker.ParamRenew)
	paramMaxHold = string(locker.ParamMaxHold)
	paramMinHold = string(locker.ParamMinHold)
	paramNote    = string(locker.ParamNote)
	paramSearch  = "search"
	paramLimit   = "limit"
	searchMaxLen = 512
)

// input reads the parameters of one request into values. The first mistake is
// kept in err; all else read after it means nothing.
type input struct {
	params params
	err    error
}

func newInput(r *http.Request, accepts ...string) *input {
	params, err := readParams(r, accepts)
	return &input{params: params, err: err}
}

func (in *input) given(name string) bool {
	_, ok := in.params.find(name)
	return ok
}

func (in *input) invalid(name, problem string) {
	if in.err != nil {
		return
	}
	code := "invalid_" + name
	if name == paramSearch || name == paramLimit { // which have no code of their own
		code = "invalid_parameter"
	}
	in.err = refuseParam(code, name, name+" "+problem)
}

// duration reads a Go duration of whole milliseconds from least to most.
func (in *input) duration(name string, otherwise, least, most time.Duration) time.Duration {
	p, ok := in.params.find(name)
	if !ok {
		return otherwise
	}
	d, err := time.ParseDuration(p.text)
	switch {
	case p.text == "0":
		d = 0 // the same in every unit
	case p.kind == kindBool:
		in.invalid(name, `must be a duration such as "30s"`)
	case isNumber(p.text):
		in.invalid(name, fmt.Sprintf(`has no unit; write "%ss" for seconds or "%[1]sms" for milliseconds`, shorten(p.text)))
	case p.kind != kindText || err != nil:
		in.invalid(name, `must be a duration such as "1500ms", "30s" or "2h"`)
	}
	switch {
	case d < least || d > most:
		in.invalid(name, fmt.Sprintf("must be from %s to %s", brief(least), brief(most)))
	case d%time.Millisecond != 0:
		in.invalid(name, "must be whole milliseconds")
	}
	return d
}

// isNumber tells whether the text is a number without a unit.
func isNumber(text string) bool {
	if strings.TrimRight(text, "0123456789.") == text {
		return false // as most are, and spared the error
	}
	_, err := strconv.ParseFloat(text, 64)
	return err == nil && strings.ContainsAny(text, "0123456789")
}

func shorten(text string) string { return text[:min(len(text), 20)] }

// brief writes 24h0m0s as 24h.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// flag reads true or false.
func (in *input) flag(name string, otherwise bool) bool {
	p, ok := in.params.find(name)
	if !ok {
		return otherwise
	}
	if p.kind == kindNumber || (p.text != "true" && p.text != "false") {
		in.invalid(name, "must be true or false")
	}
	return p.text == "true"
}

// word reads one of the words; the first of them is the default.
func (in *input) word(name string, words ...string) string {
	p, ok := in.params.find(name)
	if !ok {
		return words[0]
	}
	if p.kind != kindText || !slices.Contains(words, p.text) {
		in.invalid(name, "must be "+strings.Join(words, " or "))
	}
	return p.text
}

// text reads words for people, of at most so many characters. Control
// characters would tear lines of logs and of plain answers apart; U+FFFD is
// what is left of characters that could not be decoded, so that two different
// texts could become one.
func (in *input) text(name string, most int) string {
	p, ok := in.params.find(name)
	if !ok {
		return ""
	}
	switch {
	case p.kind != kindText:
		in.invalid(name, "must be a text")
	case !utf8.ValidString(p.text) || strings.ContainsRune(p.text, utf8.RuneError):
		in.invalid(name, "is not valid UTF-8")
	case strings.ContainsFunc(p.text, unicode.IsControl):
		in.invalid(name, "has a control character")
	case utf8.RuneCountInString(p.text) > most:
		in.invalid(name, fmt.Sprintf("is longer than %d characters", most))
	}
	return p.text
}

// owner reads the name of a worker. An empty one is what an unset variable in
// a script leaves, and would mean anybody's lock: it is refused.
func (in *input) owner() string {
	owner := in.text(paramOwner, ownerMaxLen)
	if owner == "" && in.given(paramOwner) {
		in.invalid(paramOwner, "is empty; name a worker or leave it out")
	}
	return owner
}

// fence reads a fencing token, as a JSON number or in decimal digits.
func (in *input) fence() locker.Fence {
	p, ok := in.params.find(paramFence)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(p.text, 10, 64)
	if err != nil || p.kind == kindBool || n < 1 || locker.Fence(n) > locker.MaxFence || p.text != strconv.FormatInt(n, 10) {
		in.invalid(paramFence, "must be the whole number that the grant's answer told")
	}
	return locker.Fence(n)
}

// count reads a whole number from 0 to most.
func (in *input) count(name string, otherwise, most int) int {
	p, ok := in.params.find(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(p.text)
	if err != nil || p.kind == kindBool || n < 0 || n > most || p.text != strconv.Itoa(n) {
		in.invalid(name, fmt.Sprintf("must be a whole number from 0 to %d", most))
	}
	return n
}

func (in *input) handle() locker.Handle {
	return locker.Handle{Fence: in.fence(), Owner: in.owner()}
}
