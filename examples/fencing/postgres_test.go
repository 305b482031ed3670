package fencing

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// startPostgres starts a server of its own for the test, which listens on a
// Unix socket in a temporary folder alone. It is skipped where PostgreSQL is
// not installed.
func startPostgres(t *testing.T) *sql.DB {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is good
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed: apt-get install postgresql")
	}
	programs := filepath.Dir(found[len(found)-1])

	// A path of its own, since that of a socket must be short. PostgreSQL
	// refuses to run as root.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		uid, gid := nobody(t)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(t.Context(), filepath.Join(programs, "initdb"), "--no-sync", "-A", "trust", "-U", "test", "-D", data)
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}

	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := exec.Command(filepath.Join(programs, "postgres"), "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+dir, "-F")
	server.SysProcAttr, server.Dir, server.Stdout, server.Stderr = attr, dir, log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // its fast shutdown
		_ = server.Wait()
	})

	db, err := sql.Open("pgx", fmt.Sprintf("host=%s user=test dbname=postgres", dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	sidecar.Eventually(t, "PostgreSQL answers", func() bool { return db.PingContext(t.Context()) == nil })
	return db
}

func nobody(t *testing.T) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err = strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return uid, gid
}
