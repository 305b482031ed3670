package fencing

import (
	"database/sql"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"

	_ "modernc.org/sqlite" // a driver in Go alone

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

func TestMain(m *testing.M) { sidecar.Main(m) }

// holders returns the fencing tokens of two holders of one lock: an operator
// took it away from the first, who does not know of it, and the second has it.
func holders(t *testing.T) (stale, present int64) {
	t.Helper()
	p := sidecar.Start(t)
	stale = grant(t, p, "first")
	p.Must(204, "DELETE", "/locks/resource?force=true", "")
	present = grant(t, p, "second")
	if stale >= present {
		t.Fatalf("fencing tokens do not rise: %d, then %d", stale, present)
	}
	return stale, present
}

func grant(t *testing.T, p *sidecar.Process, owner string) int64 {
	t.Helper()
	var told struct {
		Fence int64 `json:"fencing_token"`
	}
	if err := json.Unmarshal([]byte(p.Must(201, "POST", "/locks/resource", "owner="+owner)), &told); err != nil {
		t.Fatal(err)
	}
	return told.Fence
}

// databases runs the test on each database there is.
func databases(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Run("SQLite", func(t *testing.T) {
		db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/test.db")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		test(t, db)
	})
	t.Run("PostgreSQL", func(t *testing.T) { test(t, startPostgres(t)) })
}

func TestAConditionalUpdateRefusesTheStaleWriter(t *testing.T) {
	stale, present := holders(t)
	databases(t, func(t *testing.T, db *sql.DB) {
		must(t, db, AccountsTable)
		must(t, db, `INSERT INTO accounts (id, balance) VALUES ('alice', 100)`)
		if err := SetBalance(t.Context(), db, "alice", 80, stale); err != nil {
			t.Fatalf("while it still is the holder: %v", err)
		}
		if err := SetBalance(t.Context(), db, "alice", 70, present); err != nil {
			t.Fatalf("the present holder: %v", err)
		}
		if err := SetBalance(t.Context(), db, "alice", 0, stale); !errors.Is(err, ErrStale) {
			t.Errorf("the stale writer: %v, want ErrStale", err)
		}
		if err := SetBalance(t.Context(), db, "alice", 60, present); err != nil {
			t.Errorf("the present holder once more: %v", err)
		}
		expect(t, db, `SELECT balance FROM accounts WHERE id = 'alice'`, 60)
	})
}

func TestAUniqueConstraintRefusesTheStaleWriter(t *testing.T) {
	stale, present := holders(t)
	databases(t, func(t *testing.T, db *sql.DB) {
		must(t, db, ShipmentsTable)
		number, err := NextShipment(t.Context(), db) // read by the first holder, who then is paused
		if err != nil {
			t.Fatal(err)
		}
		if err := AppendShipment(t.Context(), db, number, "apples", present); err != nil {
			t.Fatalf("the present holder: %v", err)
		}
		if err := AppendShipment(t.Context(), db, number, "pears", stale); !errors.Is(err, ErrStale) {
			t.Errorf("the stale writer: %v, want ErrStale", err)
		}
		expect(t, db, `SELECT COUNT(*) FROM shipments WHERE goods = 'apples'`, 1)
		expect(t, db, `SELECT COUNT(*) FROM shipments`, 1)
	})
}

func TestAnIdempotencyKeyChargesOnce(t *testing.T) {
	stale, present := holders(t)
	payments := new(Payments)
	service := httptest.NewServer(payments)
	defer service.Close()
	if first, err := Charge(t.Context(), service.URL, "order-1", 30, present); err != nil || !first {
		t.Fatalf("the present holder: %v, %v", first, err)
	}
	if first, err := Charge(t.Context(), service.URL, "order-1", 30, stale); err != nil || first {
		t.Errorf("the same work by the stale writer: first %v, error %v; want that it was done before", first, err)
	}
	if _, err := Charge(t.Context(), service.URL, "order-2", 50, stale); !errors.Is(err, ErrStale) {
		t.Errorf("other work by the stale writer: %v, want ErrStale", err)
	}
	if times, sum := payments.Charged(); times != 1 || sum != 30 {
		t.Errorf("charged %d times, %d in all; want once, 30", times, sum)
	}
}

func TestAPreconditionRefusesTheStaleWriter(t *testing.T) {
	holders(t) // an object store knows versions and no tokens
	server := httptest.NewServer(new(ObjectStore))
	defer server.Close()
	url := server.URL + "/report.csv"

	// Both find no object; the first is paused before it writes.
	_, etag, err := ReadObject(t.Context(), url)
	if err != nil || etag != "" {
		t.Fatalf("ETag %q, error %v", etag, err)
	}
	if err := WriteObject(t.Context(), url, "by the second", ""); err != nil {
		t.Fatal(err)
	}
	if err := WriteObject(t.Context(), url, "by the first", etag); !errors.Is(err, ErrStale) {
		t.Errorf("the stale writer creates it: %v, want ErrStale", err)
	}

	// The same with an object that both have read.
	_, etag, err = ReadObject(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteObject(t.Context(), url, "by the second again", etag); err != nil {
		t.Fatal(err)
	}
	if err := WriteObject(t.Context(), url, "by the first", etag); !errors.Is(err, ErrStale) {
		t.Errorf("the stale writer replaces it: %v, want ErrStale", err)
	}
	if data, _, err := ReadObject(t.Context(), url); err != nil || data != "by the second again" {
		t.Errorf("the object is %q, error %v", data, err)
	}
}

func must(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func expect(t *testing.T, db *sql.DB, query string, want int64) {
	t.Helper()
	var got int64
	if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Errorf("%s: %d, error %v; want %d", query, got, err, want)
	}
}
