package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locksidecar/locksidecar/internal/locker"
	"github.com/locksidecar/locksidecar/internal/redistest"
)

const (
	lockName   = "lock:k"
	recordName = "lock:#grant:{lock:k}"
)

func TestAGrantWritesTheDocumentedLayout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	c.Note = "nightly"
	grant := mustAcquire(t, b, c)

	if value, _ := server.Get(lockName); value != c.Token.Reveal() {
		t.Error("the lock is not the token, byte for byte")
	}
	record := server.Hash(recordName)
	if record["fence"] != fmt.Sprint(int64(grant.Fence)) || record["note"] != "nightly" ||
		record["token"] != c.Token.Reveal() || record["since"] != fmt.Sprint(grant.UnixMicro) || len(record) != 4 {
		t.Errorf("the record has other fields than those of the grant (%d fields)", len(record))
	}
	if left := server.PTTL(recordName); left < c.Keep+4*time.Minute || left > c.Keep+recordOutlives {
		t.Errorf("the record lives %v, want the lease and %v", left, recordOutlives)
	}
	if keys := server.Keys("*"); len(keys) != 2 {
		t.Errorf("keys %q, want the lock and its record", keys)
	}
	if err := releaseOne(t.Context(), b, c); err != nil {
		t.Fatal(err)
	}
	if left := server.PTTL(recordName); left <= 0 || left > recordOutlives {
		t.Errorf("after the release the record lives %v, want %v", left, recordOutlives)
	}
}

func TestTheTimeToLiveIsExactToTheMillisecond(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	for _, ms := range []time.Duration{999, 1000, 1001} {
		for _, extra := range []time.Duration{0, 1} { // a part of a millisecond counts as one
			keep := 10*time.Second + ms*time.Millisecond
			c := claimFor(testKey)
			c.Keep = keep - extra
			since := time.Now()
			mustAcquire(t, b, c)
			left := server.PTTL(lockName)
			if least := keep - 5*time.Millisecond - time.Since(since); left > keep || left < least {
				t.Errorf("keep %v: lives %v, want at most %v and at least %v", c.Keep, left, keep, least)
			}
			if err := releaseOne(t.Context(), b, c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAnImplausibleFenceIsAnErrorAndLeavesTheLockAbsent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	year := 366 * 24 * time.Hour
	for name, last := range map[string]string{
		"a word":               "abc",
		"nothing":              "",
		"2^63-1":               "9223372036854775807",
		"2^53":                 "9007199254740992",
		"many digits":          strings.Repeat("9", 400),
		"a fraction":           "1.5",
		"an exponent":          "1e3",
		"hexadecimal":          "0x10",
		"negative":             "-5",
		"with a space":         " 5",
		"more than a year off": fmt.Sprint(time.Now().Add(year).UnixMicro()),
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("DEL", lockName, recordName)
			server.Do("HSET", recordName, "fence", last, "token", "somebody's")
			_, err := b.Acquire(t.Context(), claimFor(testKey))
			wantStoreError(t, "acquire", err, locker.StoreFailed, true)
			if _, ok := server.Get(lockName); ok {
				t.Error("the lock was left behind")
			}
			if record := server.Hash(recordName); record["fence"] != last || len(record) != 2 {
				t.Error("the record was changed")
			}
		})
	}
}

func TestTheFenceIsTheGreatestOfLastFenceServerTimeAndFloor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	hour := int64(time.Hour / time.Microsecond)
	acquire := func(floor int64) locker.Grant {
		c := claimFor(testKey)
		c.Floor = locker.Fence(floor)
		grant := mustAcquire(t, b, c)
		server.Do("DEL", lockName)
		return grant
	}
	if g := acquire(0); int64(g.Fence) != g.UnixMicro {
		t.Errorf("fence %d, want the server's time %d", g.Fence, g.UnixMicro)
	}
	floor := time.Now().UnixMicro() + hour
	if g := acquire(floor); int64(g.Fence) != floor {
		t.Errorf("fence %d, want the floor %d", g.Fence, floor)
	}
	if g := acquire(floor - hour/2); int64(g.Fence) != floor+1 {
		t.Errorf("fence %d, want one above the last, %d", g.Fence, floor+1)
	}
	server.Do("HSET", recordName, "fence", "9007199254740991")
	c := claimFor(testKey)
	c.Floor = locker.MaxFence
	_, err := b.Acquire(t.Context(), c)
	wantStoreError(t, "acquire above the greatest fence", err, locker.StoreFailed, true)
}

func TestWhatIsNotALockIsAConflictAndIsNotTouched(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	for name, put := range map[string][]any{
		"a list at the lock":               {"RPUSH", lockName, "x"},
		"a list at its record":             {"RPUSH", recordName, "x"},
		"a string without a time to live":  {"SET", lockName, "x"},
		"a token without a time to live":   {"SET", lockName, locker.NewToken(pod).Reveal()},
		"an empty string, without as well": {"SET", lockName, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			server.Do(put...)
			before := server.Do("DUMP", put[1])
			if _, err := b.Acquire(t.Context(), claimFor(testKey)); !errors.Is(err, locker.ErrKeyConflict) {
				t.Errorf("acquire: %v, want a key conflict", err)
			}
			if server.Do("DUMP", put[1]) != before || server.PTTL(put[1].(string)) != redistest.NoTTL {
				t.Error("it was changed")
			}
			if keys := server.Keys("*"); len(keys) != 1 {
				t.Errorf("keys %q besides", keys)
			}
		})
	}
}

func TestAnOwnTokenWithoutItsRecordIsUnknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	server.Do("DEL", recordName)
	_, err := b.Acquire(t.Context(), c)
	wantStoreError(t, "acquire again", err, locker.StoreFailed, false)
}

// Somebody has made it persistent by hand; the first renewal mends that.
func TestAnOwnTokenWithoutATTLIsOursForAsLongAsAsked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	first := mustAcquire(t, b, c)
	server.Do("PERSIST", lockName)
	if again := mustAcquire(t, b, c); again.Fence != first.Fence || again.Left != c.Keep {
		t.Errorf("fence %d and %v left, want %d and %v", again.Fence, again.Left, first.Fence, c.Keep)
	}
}

func TestNothingSaysTheSecretPartOfAnothersToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	c := claimFor(testKey)
	mustAcquire(t, b, c)
	secret := c.Token.Reveal()[len("ls1/"+pod+"/"):]
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	var held *locker.HeldError
	if !errors.As(err, &held) || held.Holder == nil || held.Holder.Pod != pod {
		t.Fatalf("acquire: %v, want held by %s", err, pod)
	}
	o, err := b.Inspect(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%+v", held.Occupancy), fmt.Sprintf("%+v", *held.Holder), fmt.Sprintf("%+v", *o.Holder), held.Error()} {
		if strings.Contains(text, secret) {
			t.Error("the secret is in what is told of the holder")
		}
	}
}

func TestTokensAreComparedByteForByte(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	const token = "ls1/pod/ABC\x00\xff\r\n%s{}"
	c := claimFor(testKey)
	c.Token = locker.TokenFromStore(token)
	mustAcquire(t, b, c)
	if value, _ := server.Get(lockName); value != token {
		t.Errorf("the lock holds %q", value)
	}
	for _, other := range []string{"", token + "x", token[:len(token)-1], strings.ToLower(token), token + "\x00"} {
		stranger := c
		stranger.Token = locker.TokenFromStore(other)
		if err := renewOne(t.Context(), b, stranger); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("renew with %q: %v, want taken", other, err)
		}
		if err := releaseOne(t.Context(), b, stranger); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("release with %q: %v, want taken", other, err)
		}
	}
	if err := releaseOne(t.Context(), b, c); err != nil {
		t.Error(err)
	}
}

func TestALargeForeignValueIsNotFetched(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	server.Do("SET", lockName, "ls1/"+strings.Repeat("x", 1<<20)+"/y", "PX", 60_000)
	_, err := b.Acquire(t.Context(), claimFor(testKey))
	var held *locker.HeldError
	if !errors.As(err, &held) || held.Holder != nil {
		t.Errorf("acquire: %v, want held by nobody named", err)
	}
}

func TestAClaimThatIsLateOnlyByAnOldReadingIsSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server, Config{})
	mustAcquire(t, b, claimFor("other"))
	misread := func() { // as if the server's clock had been an hour behind and has stepped
		only(b).clock.mu.Lock()
		defer only(b).clock.mu.Unlock()
		only(b).clock.lo -= int64(time.Hour)
		only(b).clock.hi -= int64(time.Hour)
	}
	misread()
	c := claimFor(testKey)
	grant := mustAcquire(t, b, c)
	if (grant.Step - time.Hour).Abs() > time.Minute {
		t.Errorf("a step of %v was told, want an hour", grant.Step)
	}
	misread()
	v := b.Renew(t.Context(), []locker.Renewal{renewalOf(c)})[0]
	if v.Err != nil || (v.Step-time.Hour).Abs() > time.Minute {
		t.Errorf("renew: %v with a step of %v, want none and an hour", v.Err, v.Step)
	}
	misread()
	late := claimFor("late")
	late.NotAfter = locker.BootTime().Add(-time.Minute)
	if _, err := b.Acquire(t.Context(), late); !errors.Is(err, locker.ErrLate) {
		t.Errorf("a claim after its time: %v, want late", err)
	}
}
