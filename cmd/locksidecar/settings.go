package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/locksidecar/locksidecar/internal/locker"
)

//go:generate go test -run=^TestTheSettingsPageIsCurrent$ -count=1 . -update

// envPrefix begins the name of every environment variable that is read.
const envPrefix = "LOCKSIDECAR"

// Settings is everything that can be configured. It is read once, by
// [LoadSettings]; docs/config.md is generated from it.
//
// Tags: setting is the variable's name without the prefix, default its text if
// it is not set, shown what the documentation says instead of the default,
// desc its meaning, empty that it may be set to nothing.
type Settings struct {
	RedisMode          RedisMode  `setting:"REDIS_MODE" default:"single" desc:"What decides who owns a lock: single (one Redis server), sentinel (the master that Redis Sentinels name), cluster (a Redis Cluster), redlock (a majority of independent Redis servers) or memory (this process alone, as locksidecar dev does: nothing is shared with other pods)."`
	RedisAddrs         RedisAddrs `setting:"REDIS_ADDRS" shown:"none, required" desc:"Where Redis is: host:port, redis://, rediss:// (TLS) or unix:///path. Exactly one in single mode, whose URL may carry user, password and database, each only if its own setting is absent; it is never logged with them. In sentinel mode all Sentinels, in cluster mode some nodes, from which the others are learned, in redlock mode all servers, an odd number from 3 to 15; several are separated by commas."`
	RedisUsername      string     `setting:"REDIS_USERNAME" desc:"ACL user. Needs a password."`
	RedisUsernameFile  FilePath   `setting:"REDIS_USERNAME_FILE" desc:"File that holds the user, read again on every new connection."`
	RedisPassword      Secret     `setting:"REDIS_PASSWORD" desc:"Password. Prefer the file: it can be rotated without a restart."`
	RedisPasswordFile  FilePath   `setting:"REDIS_PASSWORD_FILE" desc:"File that holds the password, read again on every new connection; one line break at its end is ignored."`
	RedisDB            int        `setting:"REDIS_DB" default:"0" desc:"Database number. Sidecars on different databases do not exclude each other."`
	RedisTLS           bool       `setting:"REDIS_TLS" default:"false" desc:"Use TLS. A rediss:// address turns it on too. There is no fall-back to plain text."`
	RedisTLSCAFile     FilePath   `setting:"REDIS_TLS_CA_FILE" shown:"the system's" desc:"PEM file of the authorities that may sign the server's certificate; read again on every new connection."`
	RedisTLSCertFile   FilePath   `setting:"REDIS_TLS_CERT_FILE" desc:"PEM file of the client certificate; read again on every new connection."`
	RedisTLSKeyFile    FilePath   `setting:"REDIS_TLS_KEY_FILE" desc:"PEM file of the client certificate's key; read again on every new connection."`
	RedisTLSServerName string     `setting:"REDIS_TLS_SERVER_NAME" shown:"the host of the address" desc:"Name that the server's certificate must have."`

	RedisMinReplicas int `setting:"REDIS_MIN_REPLICAS" default:"0" desc:"How many replicas must have acknowledged a grant, at most 16: one that fewer have is undone, and the answer is 503 not_replicated; a renewal counts as failed. Fewer than all replicas make the loss of a lock by a failover less likely and do not rule it out; see docs/guarantees.md. 0 waits for none."`

	RedisRestartGuard time.Duration `setting:"REDIS_RESTART_GUARD" default:"0s" shown:"60s in redlock mode, else 0s: off" desc:"For how long a Redis server that may have lost its data grants no new lock, while renewals and releases go on: one that was started again, flushed or promoted, and one that is used for the first time. No lease may be longer. All sidecars that share locks must have the same; see docs/operations.md. At least 1s. Needs INFO."`

	RedisNodeTimeout time.Duration `setting:"REDIS_NODE_TIMEOUT" default:"0s" shown:"half of STORE_TIMEOUT" desc:"In redlock mode, how long one of the servers may take to answer to a request for a lock before it is asked again, at least 5ms. Others do not wait for it."`

	SentinelMaster       string   `setting:"SENTINEL_MASTER" shown:"none, required in sentinel mode" desc:"Name under which the Sentinels watch the master."`
	SentinelUsername     string   `setting:"SENTINEL_USERNAME" desc:"ACL user at the Sentinels. Needs a password. REDIS_ credentials are for the master alone."`
	SentinelUsernameFile FilePath `setting:"SENTINEL_USERNAME_FILE" desc:"File that holds that user, read again on every new connection."`
	SentinelPassword     Secret   `setting:"SENTINEL_PASSWORD" desc:"Password at the Sentinels. Prefer the file."`
	SentinelPasswordFile FilePath `setting:"SENTINEL_PASSWORD_FILE" desc:"File that holds that password, read again on every new connection; one line break at its end is ignored."`

	StoreTimeout time.Duration `setting:"STORE_TIMEOUT" default:"300ms" desc:"How long one request to the store may take, at least 10ms."`
	KeyPrefix    string        `setting:"KEY_PREFIX" default:"lock:" empty:"allowed" desc:"Put before every key in the store. May be set to nothing. At most 128 bytes; no braces, no glob characters, no white space, no leading #. Sidecars with different prefixes do not exclude each other."`
	Holder       string        `setting:"HOLDER" shown:"$POD_NAMESPACE/$POD_NAME, else the host name" desc:"Label of this sidecar, for people who ask who holds a lock. At most 317 bytes, no white space."`

	DefaultTTL     time.Duration `setting:"DEFAULT_TTL" default:"30s" desc:"Lease of a lock taken without ttl, at least 1s."`
	MaxTTL         time.Duration `setting:"MAX_TTL" default:"24h" shown:"24h, or REDIS_RESTART_GUARD if that is on" desc:"Longest lease that may be asked for, at most 8760h."`
	DefaultMaxHold time.Duration `setting:"DEFAULT_MAX_HOLD" shown:"none" desc:"How long a lock taken without max_hold may be held in all, at most 8760h. 0s sets no bound: a lock that nobody gives back is renewed for as long as this sidecar runs."`
	MaxWait        time.Duration `setting:"MAX_WAIT" default:"1h" desc:"Longest wait that may be asked for, at most 8760h. 0s allows none."`
	MaxHeld        int           `setting:"MAX_HELD" default:"10000" desc:"How many locks this sidecar holds at most, 1 to 1000000."`
	MaxWaiters     int           `setting:"MAX_WAITERS" default:"2000" desc:"How many requests wait in this sidecar at most, 1 to 100000."`
	MetricKeys     KeyList       `setting:"METRIC_KEYS" desc:"Keys that have a locksidecar_lock_held metric of their own, at most 50. Keys that contain a comma cannot be named here."`

	Listen        ListenAddrs        `setting:"LISTEN" default:"127.0.0.1:5625,[::1]:5625" desc:"Where the lock API listens: host:port or unix:///path."`
	AdminListen   AdminAddr          `setting:"ADMIN_LISTEN" default:":5626" desc:"Where metrics and probes listen, without any token: host:port, or off."`
	AllowedHosts  HostList           `setting:"ALLOWED_HOSTS" desc:"Host names and addresses, without port, that a request to the lock API may name beside localhost, 127.0.0.1 and [::1]."`
	APITokenFile  FilePath           `setting:"API_TOKEN_FILE" desc:"File that holds the token which the lock API then demands as Authorization: Bearer."`
	StateDir      DirPath            `setting:"STATE_DIR" desc:"Directory in which held locks are recorded, so that a sidecar that was killed takes them up again; see docs/operations.md. Mount a memory-backed volume there that no other container has: the records hold secret tokens. Without it nothing is written anywhere, and after a restart locks end by their TTL."`
	ShutdownMode  locker.ReleaseMode `setting:"SHUTDOWN_MODE" default:"drop" desc:"What happens at the end to locks that are still held: drop (given back), guarded (given back once the connection that took them has closed, else left to their TTL) or release (the application gives them back within the grace, else left to their TTL)."`
	ShutdownGrace time.Duration      `setting:"SHUTDOWN_GRACE" default:"1500ms" desc:"How long shutdown waits for that."`

	Strict bool `setting:"STRICT" default:"false" desc:"Begin only once the store has answered and none of the checks finds it unsafe: eviction, persistence, replicas, min_replicas, version, same_server, or that INFO or CONFIG GET are not permitted; else end with exit code 1 and say why. Later on the checks only warn."`

	LogLevel  slog.Level `setting:"LOG_LEVEL" default:"info" desc:"debug, info, warn or error."`
	LogFormat LogFormat  `setting:"LOG_FORMAT" default:"json" desc:"json or text."`
}

// FilePath is the path of a file that is read at start and again whenever its
// content is needed.
type FilePath string

// DirPath is the path of a directory that is there at start.
type DirPath string

// RedisMode says how the owner of a lock is decided.
type RedisMode string

const (
	ModeSingle   RedisMode = "single"   // by one Redis server
	ModeSentinel RedisMode = "sentinel" // by the master that Sentinels name
	ModeCluster  RedisMode = "cluster"  // by the nodes of a Redis Cluster
	ModeRedlock  RedisMode = "redlock"  // by a majority of independent Redis servers
	ModeMemory   RedisMode = "memory"   // in this process
)

// devDefaults are the defaults of `locksidecar dev` that differ.
var devDefaults = map[string]string{
	"LOG_FORMAT":   string(LogText),
	"ADMIN_LISTEN": "127.0.0.1:5626",
}

// directDefaults are the defaults of a command that needs no sidecar: its log
// stands between what CMD writes.
var directDefaults = map[string]string{
	"LOG_FORMAT": string(LogText),
	"LOG_LEVEL":  "error",
}

// LoadSettings reads the process's environment and the files that it names,
// and checks all of it. hostname is the holder's label where nothing else
// says it; dev makes them the settings of `locksidecar dev`, which always
// uses the memory backend.
//
// The error is a [*SettingsError] with every mistake that there is. The
// warnings are for the log; they hold no secrets.
func LoadSettings(hostname string, dev bool) (Settings, []string, error) {
	c := checker{dev: dev}
	if dev {
		c.defaults = devDefaults
	}
	return c.load(hostname)
}

// LoadDirectSettings is LoadSettings for a command that needs no sidecar.
func LoadDirectSettings(hostname string) (Settings, []string, error) {
	c := checker{defaults: directDefaults}
	return c.load(hostname)
}

func (c *checker) load(hostname string) (Settings, []string, error) {
	c.given, c.broken = make(map[string]bool), make(map[string]bool)
	c.read()
	c.names(os.Environ())
	c.check(hostname)
	if len(c.mistakes) > 0 {
		return Settings{}, c.warnings, &SettingsError{Mistakes: c.mistakes}
	}
	return c.Settings, c.warnings, nil
}

// checker collects what is wrong with the settings while they are read.
type checker struct {
	Settings
	dev      bool
	defaults map[string]string // that are others than the documented
	given    map[string]bool   // names that are set, without the prefix
	broken   map[string]bool   // names whose value is wrong by itself
	mistakes []Mistake
	warnings []string
}

// read fills in the settings. Each is handed to envconfig by itself, since
// envconfig stops at the first mistake and ours are to be told all at once. No
// envconfig tag is used: with one, envconfig would fall back to the variable
// without the prefix, and the application's own LOG_LEVEL is none of ours.
func (c *checker) read() {
	settings := reflect.ValueOf(&c.Settings).Elem()
	for i := range settings.NumField() {
		field := settings.Type().Field(i)
		name := field.Tag.Get("setting")
		value, given := os.LookupEnv(envPrefix + "_" + name)
		c.given[name] = given
		if given && value == "" && field.Tag.Get("empty") != "allowed" {
			c.broken[name] = true
			c.mistake(name, "is set to nothing; leave it out for the default")
			continue
		}
		text := field.Tag.Get("default")
		if other, ok := c.defaults[name]; ok {
			text = other
		}
		one := reflect.New(reflect.StructOf([]reflect.StructField{{
			Name: name,
			Type: field.Type,
			Tag:  reflect.StructTag(fmt.Sprintf("default:%q", text)),
		}}))
		err := envconfig.Process(envPrefix, one.Interface())
		if err == nil {
			settings.Field(i).Set(one.Elem().Field(0))
			continue
		}
		c.broken[name] = true
		for _, problem := range problems(field.Type, value, err) {
			c.mistake(name, "%s", problem)
		}
	}
}

// problems says in our words why a value could not be read. The types that
// may hold a secret have a Set method of their own, and its errors are told as
// they are; for the rest the value is shown.
func problems(t reflect.Type, value string, err error) []string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return []string{fmt.Sprintf("%q is not a duration; write a number with its unit, such as 1500ms, 30s or 2h", value)}
	case reflect.TypeFor[int]():
		return []string{fmt.Sprintf("%q is not a whole number", value)}
	case reflect.TypeFor[bool]():
		return []string{fmt.Sprintf("%q is neither true nor false", value)}
	case reflect.TypeFor[slog.Level]():
		return []string{fmt.Sprintf("%q is not one of debug, info, warn, error", value)}
	}
	var parse *envconfig.ParseError
	if errors.As(err, &parse) {
		err = parse.Err
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var texts []string
		for _, e := range many.Unwrap() {
			texts = append(texts, e.Error())
		}
		return texts
	}
	return []string{err.Error()}
}

func (c *checker) mistake(name, format string, args ...any) {
	c.mistakes = append(c.mistakes, Mistake{envPrefix + "_" + name, fmt.Sprintf(format, args...)})
}

func (c *checker) warn(name, format string, args ...any) {
	c.warnings = append(c.warnings, envPrefix+"_"+name+" "+fmt.Sprintf(format, args...))
}

// Mistake is one thing that is wrong with the settings.
type Mistake struct {
	Name    string // the environment variable
	Problem string // what is wrong, and what would be right
}

// SettingsError is everything that is wrong with the settings, one line each.
type SettingsError struct{ Mistakes []Mistake }

func (e *SettingsError) Error() string {
	var b strings.Builder
	if len(e.Mistakes) == 1 {
		b.WriteString("a setting is wrong:")
	} else {
		fmt.Fprintf(&b, "%d things are wrong with the settings:", len(e.Mistakes))
	}
	for _, m := range e.Mistakes {
		fmt.Fprintf(&b, "\n  %s %s", m.Name, m.Problem)
	}
	return b.String()
}
