package statedir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// format is that of the files which are written. Any change that makes an
// earlier version misread them raises it.
const format = 1

// line is one line of the file; one field is set.
type line struct {
	Head  *head  `json:"head,omitempty"`
	Floor *floor `json:"floor,omitempty"`
	Grant *grant `json:"grant,omitempty"`
}

type head struct {
	Format       int           `json:"format"`
	Boot         string        `json:"boot"`
	Scope        string        `json:"scope"`
	StoreTimeout time.Duration `json:"store_timeout"`
}

type floor struct {
	Highest   locker.Fence   `json:"highest"`
	UnixMicro int64          `json:"unix_micro,omitempty"`
	At        locker.Instant `json:"at,omitempty"`
}

// grant is a locker.Record. Instants and durations are in nanoseconds.
type grant struct {
	ID         locker.GrantID `json:"id"`
	Phase      string         `json:"phase"`
	At         locker.Instant `json:"at,omitempty"`
	Key        locker.Key     `json:"key,omitempty"`
	Token      string         `json:"token,omitempty"`
	Owner      string         `json:"owner,omitempty"`
	Note       string         `json:"note,omitempty"`
	Fence      locker.Fence   `json:"fence,omitempty"`
	Asked      locker.Instant `json:"asked,omitempty"`
	AcquiredAt int64          `json:"acquired_at,omitempty"`
	TTL        time.Duration  `json:"ttl,omitempty"`
	MaxHold    time.Duration  `json:"max_hold,omitempty"`
	MinHold    time.Duration  `json:"min_hold,omitempty"`
	ValidUntil locker.Instant `json:"valid_until,omitempty"`
	Lease      time.Duration  `json:"lease,omitempty"`
	Least      time.Duration  `json:"least,omitempty"`
	StoreUntil locker.Instant `json:"store_until,omitempty"`
	Renewals   int            `json:"renewals,omitempty"`
	Renew      bool           `json:"renew,omitempty"`
	Bound      bool           `json:"bound,omitempty"`
	Capped     bool           `json:"capped,omitempty"`
	Tethered   bool           `json:"tethered,omitempty"`
	KeepUntil  locker.Instant `json:"keep_until,omitempty"`
	Revocable  bool           `json:"revocable,omitempty"`
	Cause      locker.Cause   `json:"cause,omitempty"`
	LostAt     int64          `json:"lost_at,omitempty"`
}

// phases are the words for locker's phases in the file.
var phases = [...]string{
	locker.PhaseAsking:    "asking",
	locker.PhaseGranted:   "granted",
	locker.PhaseDelivered: "delivered",
	locker.PhaseReleasing: "releasing",
	locker.PhaseLost:      "lost",
	locker.PhaseOver:      "over",
}

func (g *grant) set(r *locker.Record) {
	*g = grant{
		ID: r.ID, Phase: phases[r.Phase], At: r.At, Key: r.Key, Token: r.Token.Reveal(), Owner: r.Owner, Note: r.Note, Fence: r.Fence,
		Asked: r.Asked, AcquiredAt: r.AcquiredAt, TTL: r.TTL, MaxHold: r.MaxHold, MinHold: r.MinHold,
		ValidUntil: r.ValidUntil, Lease: r.Lease, Least: r.Least, StoreUntil: r.StoreUntil, Renewals: r.Renewals,
		Renew: r.Renew, Bound: r.Bound, Capped: r.Capped, Tethered: r.Tethered,
		KeepUntil: r.KeepUntil, Revocable: r.Revocable, Cause: r.Cause, LostAt: r.LostAt,
	}
}

// record returns what the line says, or why that cannot be.
func (g *grant) record() (locker.Record, error) {
	number := slices.Index(phases[:], g.Phase)
	phase := locker.Phase(max(number, 0))
	switch {
	case number < int(locker.PhaseAsking):
		return locker.Record{}, fmt.Errorf("unknown phase %.20q", g.Phase)
	case g.ID == 0:
		return locker.Record{}, errors.New("a grant without a number")
	case phase == locker.PhaseOver:
		return locker.Record{ID: g.ID, Phase: phase}, nil
	case g.Key == "" || g.Token == "":
		return locker.Record{}, errors.New("a grant without key or token")
	}
	for _, d := range []time.Duration{g.TTL, g.MaxHold, g.MinHold, g.Lease, g.Least} {
		if d < 0 || d > longest {
			return locker.Record{}, errors.New("a grant with an impossible duration")
		}
	}
	if held := phase == locker.PhaseGranted || phase == locker.PhaseDelivered; held && (g.TTL == 0 || g.Lease == 0 || g.Fence <= 0 || g.Fence > locker.MaxFence) {
		return locker.Record{}, errors.New("a held lock without TTL, lease or fencing token")
	}
	return locker.Record{
		ID: g.ID, Phase: phase, At: g.At, Key: g.Key, Token: locker.TokenFromStore(g.Token), Owner: g.Owner, Note: g.Note, Fence: g.Fence,
		Asked: g.Asked, AcquiredAt: g.AcquiredAt, TTL: g.TTL, MaxHold: g.MaxHold, MinHold: g.MinHold,
		ValidUntil: g.ValidUntil, Lease: g.Lease, Least: g.Least, StoreUntil: g.StoreUntil, Renewals: g.Renewals,
		Renew: g.Renew, Bound: g.Bound, Capped: g.Capped, Tethered: g.Tethered,
		KeepUntil: g.KeepUntil, Revocable: g.Revocable, Cause: g.Cause, LostAt: g.LostAt,
	}, nil
}

// longest is above any duration that can be asked for: ten years.
const longest = 10 * 365 * 24 * time.Hour

// pen writes lines. It keeps what it needs from one to the next, so that
// writing one allocates next to nothing.
type pen struct {
	text  bytes.Buffer
	json  *json.Encoder
	line  line
	grant grant
	floor floor
}

func newPen() *pen {
	p := new(pen)
	p.json = json.NewEncoder(&p.text)
	p.json.SetEscapeHTML(false)
	return p
}

const sumLength = len("01234567 ")

// write appends a line to the text.
func (p *pen) write(l line) {
	start := p.text.Len()
	p.text.WriteString("........ ")
	p.line = l
	_ = p.json.Encode(&p.line) // to memory, and it holds nothing that JSON has no word for; ends the line
	text := p.text.Bytes()[start:]
	sum := crc32.ChecksumIEEE(text[sumLength : len(text)-1])
	const digits = "0123456789abcdef"
	for i := range 8 {
		text[i] = digits[sum>>(28-4*i)&0xf]
	}
}

func (p *pen) writeGrant(r *locker.Record) {
	p.grant.set(r)
	p.write(line{Grant: &p.grant})
}

func (p *pen) writeFloor(f locker.Floor) {
	p.floor = floor(f)
	p.write(line{Floor: &p.floor})
}

// parse reads a line without its end.
func parse(text []byte) (line, error) {
	if len(text) < sumLength || text[sumLength-1] != ' ' {
		return line{}, errors.New("no line of ours")
	}
	sum, err := strconv.ParseUint(string(text[:sumLength-1]), 16, 32)
	if err != nil || uint32(sum) != crc32.ChecksumIEEE(text[sumLength:]) {
		return line{}, errors.New("wrong checksum")
	}
	var l line
	if err := json.Unmarshal(text[sumLength:], &l); err != nil {
		return line{}, errors.New("wrong JSON") // the error would repeat parts of it
	}
	return l, nil
}
