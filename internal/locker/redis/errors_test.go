package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// driverReply is an error reply as the driver hands it on.
type driverReply string

func (e driverReply) Error() string { return string(e) }
func (driverReply) RedisError()     {}

func TestEveryErrorReplyHasItsMeaning(t *testing.T) {
	for reply, want := range map[string]verdict{
		"LOADING Redis is loading the dataset in memory":                                                                  {locker.StoreUnavailable, true, false, later},
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is":                                             {locker.StoreUnavailable, true, true, demoted},
		"READONLY You can't write against a read only replica.":                                                           {locker.StoreUnavailable, true, true, demoted},
		"CLUSTERDOWN The cluster is down":                                                                                 {locker.StoreUnavailable, true, false, later},
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                         {locker.StoreUnavailable, true, false, later},
		"MOVED 3999 127.0.0.1:6381":                                                                                       {locker.StoreUnavailable, true, false, moved},
		"ASK 3999 127.0.0.1:6381":                                                                                         {locker.StoreUnavailable, true, false, asked},
		"CROSSSLOT Keys in request don't hash to the same slot":                                                           {locker.StoreUnavailable, true, false, none},
		"ERR Script attempted to access a non local key in a cluster node script: 5a, on @user_script:12.":                {locker.StoreUnavailable, true, false, later},
		"BUSY Redis is busy running a script.":                                                                            {locker.StoreBusy, true, false, none},
		"NOREPLICAS Not enough good replicas to write.":                                                                   {locker.StoreWriteRefused, true, false, none},
		"OOM command not allowed when used memory > 'maxmemory'.":                                                         {locker.StoreWriteRefused, true, false, none},
		"MISCONF Redis is configured to save RDB snapshots":                                                               {locker.StoreWriteRefused, true, false, none},
		"NOAUTH Authentication required.":                                                                                 {locker.StoreAuthFailed, true, true, none},
		"WRONGPASS invalid username-password pair or user is disabled.":                                                   {locker.StoreAuthFailed, true, true, none},
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                {locker.StoreAuthFailed, true, false, none},
		"NOSCRIPT No matching script. Please use EVAL.":                                                                   {locker.StoreFailed, true, false, none},
		"EXECABORT Transaction discarded because of previous errors.":                                                     {locker.StoreFailed, true, false, none},
		"ERR unknown command 'EVALSHA', with args beginning with: 'ls1/p/SECR'":                                           {locker.StoreFailed, true, false, none},
		"ERR max number of clients reached":                                                                               {locker.StoreUnavailable, true, true, none},
		"ERR AUTH <password> called without any password configured":                                                      {locker.StoreAuthFailed, true, true, none},
		"ERR The user executing the script can't run this command":                                                        {locker.StoreAuthFailed, true, false, none},
		"ERR The user executing the script is lacking the permissions for the command":                                    {locker.StoreAuthFailed, true, false, none},
		"ERR ACL failure in script: User pod has no permissions to run the 'hset' command":                                {locker.StoreAuthFailed, true, false, none},
		"@user_script: 47: The user executing the script can't run this command or subcommand":                            {locker.StoreAuthFailed, true, false, none},
		"ERR @user_script: 47: The user executing the script can't run this command or subcommand":                        {locker.StoreAuthFailed, true, false, none},
		"ERR @user_script: 47: -OOM command not allowed when used memory > 'maxmemory'.":                                  {locker.StoreWriteRefused, true, false, none},
		"ERR @user_script: 47: -NOREPLICAS Not enough good replicas to write.":                                            {locker.StoreWriteRefused, true, false, none},
		"ERR @user_script: 47: Lua script attempted to access a non local key in a cluster node":                          {locker.StoreUnavailable, true, false, later},
		"@user_script: 47: Lua script attempted to execute a command while the cluster is down":                           {locker.StoreUnavailable, true, false, later},
		"ERR @user_script: 47: something else":                                                                            {locker.StoreFailed, false, false, none},
		"ERR user_script:12: attempt to index a nil value":                                                                {locker.StoreFailed, false, false, none},
		"@user_script: 47: -OOM command not allowed when used memory > 'maxmemory'.":                                      {locker.StoreWriteRefused, true, false, none},
		"ERR Error running script (call to f_5a): @user_script:47: @user_script: 47: -READONLY You can't write against a": {locker.StoreUnavailable, true, true, demoted},
		"ERR Error running script (call to f_5a): @user_script:47: user_script:47: attempt to index a nil value":          {locker.StoreFailed, false, false, none},
		"OOM command not allowed when used memory > 'maxmemory'. script: 5a, on @user_script:47.":                         {locker.StoreWriteRefused, true, false, none},
		"BADFENCE the last fencing token of the lock is not plausible":                                                    {locker.StoreFailed, true, false, none},
		"GUARDS another sidecar has the restart guard 60000 ms":                                                           {locker.StoreFailed, true, false, none},
		"NOGUARD the restart guard needs INFO":                                                                            {locker.StoreAuthFailed, true, false, none},
		"NORECORD the lock has no grant record":                                                                           {locker.StoreFailed, true, false, none},
		"NOGRANT the lock is ours and the record of its grant is not there":                                               {locker.StoreFailed, false, false, none},
		"SOMETHING nobody has heard of":                                                                                   {locker.StoreFailed, false, false, none},
		"":                                                                                                                {locker.StoreFailed, false, false, none},
	} {
		if got := readReply(reply); got != want {
			t.Errorf("%.30q means %+v, want %+v", reply, got, want)
		}
		err := callFailure(fmt.Errorf("wrapped: %w", driverReply(reply)), true)
		wantStoreError(t, reply, err, want.reason, want.certain)
	}
	if len(replyTable) != 29 {
		t.Errorf("the table has %d rows; has each a line above?", len(replyTable))
	}
}

func TestFailuresOfTheConnectionAreCertainOnlyIfNothingWasSent(t *testing.T) {
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for _, c := range []struct {
		name   string
		err    error
		reason locker.StoreReason
	}{
		{"end of stream", io.EOF, locker.StoreBroken},
		{"end in the midst of an answer", io.ErrUnexpectedEOF, locker.StoreBroken},
		{"reset", read(syscall.ECONNRESET), locker.StoreBroken},
		{"broken pipe", &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}, locker.StoreBroken},
		{"closed by us", read(net.ErrClosed), locker.StoreBroken},
		{"read deadline", read(os.ErrDeadlineExceeded), locker.StoreTimeout},
		{"context deadline", context.DeadlineExceeded, locker.StoreTimeout},
		{"caller gone", context.Canceled, locker.StoreTimeout},
		{"not understood", errors.New(`redis: can't parse "ls1/pod/SECRET"`), locker.StoreBroken},
	} {
		for _, sent := range []bool{true, false} {
			err := callFailure(c.err, sent)
			wantStoreError(t, c.name, err, c.reason, !sent)
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: the error quotes what was received", c.name)
			}
		}
	}
	for _, err := range []error{goredis.ErrPoolTimeout, goredis.ErrPoolExhausted} {
		wantStoreError(t, err.Error(), callFailure(err, true), locker.StoreBusy, true)
	}
}

func TestFailuresToConnectAreCertain(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		name   string
		err    error
		reason locker.StoreReason
	}{
		{"refused", dial(syscall.ECONNREFUSED), locker.StoreUnavailable},
		{"dial timeout", dial(os.ErrDeadlineExceeded), locker.StoreUnavailable},
		{"no such host", &net.DNSError{Err: "no such host", Name: "redis"}, locker.StoreUnavailable},
		{"silence", context.DeadlineExceeded, locker.StoreUnavailable},
		{"a foreign protocol", errors.New("redis: can't parse"), locker.StoreUnavailable},
		{"wrong password", driverReply("WRONGPASS invalid username-password pair"), locker.StoreAuthFailed},
		{"no password", driverReply("NOAUTH Authentication required."), locker.StoreAuthFailed},
		{"no permission", driverReply("NOPERM this user has no permissions"), locker.StoreAuthFailed},
		{"loading", driverReply("LOADING Redis is loading"), locker.StoreUnavailable},
		{"busy", driverReply("BUSY Redis is busy"), locker.StoreBusy},
		{"unknown", driverReply("ERR whatever"), locker.StoreUnavailable},
	} {
		wantStoreError(t, c.name, connectFailure(c.err), c.reason, true)
	}
}

func TestAnErrorReplyIsCutBeforeItQuotesUs(t *testing.T) {
	for reply, want := range map[string]string{
		"ERR unknown command 'EVALSHA', with args beginning with: 'ls1/p/SECRET'": "store: error: ERR unknown command …",
		"ERR unknown command `foo`, with args beginning with: `SECRET`, ":         "store: error: ERR unknown command …",
		"ERR odd \"SECRET\"":                             "store: error: ERR odd …",
		"BUSY one\r\nSECRET":                             "store: busy: BUSY one …",
		"LOADING Redis is loading the dataset in memory": "store: unavailable: LOADING Redis is loading the dataset in memory",
	} {
		if got := replyFailure(reply).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := replyFailure("ERR " + strings.Repeat("é", 500)).Error(); len(got) > 250 || strings.ContainsRune(got, '�') {
		t.Errorf("a long reply became %d bytes: %q", len(got), got)
	}
}
