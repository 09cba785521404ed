// Package leasehold has locks with a lease: kept alive in the background, and told to stop before another can have them.
//
//	c, err := leasehold.New("http://127.0.0.1:8080", leasehold.Owner("worker-1"))
//	defer c.Close()
//	err = c.Lock("db/migrate", leasehold.Wait(10*time.Second)).Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
//		return store.Write(ctx, lease.FencingToken(), rows)
//	})
//
// The context of the work is canceled at half of the ttl without a confirmed renewal, with the cause [ErrJeopardy]: stop,
// no other owner can have it yet.
package leasehold

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"leasehold.example/sdk/go/machine"
)

// DefaultTTL is how long a lease stands without a renewal, unless set otherwise.
const DefaultTTL = 30 * time.Second

// Forever is a wait without an end.
const Forever = machine.Forever

// config is what options set: those of a client are what its locks begin with.
type config struct {
	owner     string
	ttl       time.Duration
	wait      time.Duration
	mode      string
	permits   int
	metadata  JSON
	reclaim   time.Duration
	isKept    bool
	namespace string
	// Behind pointers, so that nobody prints them with the rest.
	token, tokenFile *string
	allowsCleartext  bool
	cacert           string
	tls              *tls.Config
	settings         machine.Settings
	clock            Clock
}

// Option says how a client is made, or how a lock is asked for.
type Option func(*config)

// Owner is who asks; a name of its own for each request if neither client nor lock has one. Conflicts and deadlocks are
// between owners.
func Owner(owner string) Option { return func(c *config) { c.owner = owner } }

// TTL is how long a lease stands without a renewal.
func TTL(ttl time.Duration) Option { return func(c *config) { c.ttl = ttl } }

// Wait is how long to queue: zero is not at all, [Forever] without an end.
func Wait(wait time.Duration) Option { return func(c *config) { c.wait = max(0, wait) } }

// Shared asks for a lock that others may share.
func Shared() Option { return func(c *config) { c.mode = "shared" } }

// Permits asks for one of so many; all who ask must name the same number.
func Permits(of int) Option { return func(c *config) { c.permits = of } }

// Metadata is shown to those who look at the lock.
func Metadata(metadata JSON) Option { return func(c *config) { c.metadata = metadata } }

// ReclaimWindow is how long after the lease lapsed only this owner may take the lock back.
func ReclaimWindow(length time.Duration) Option { return func(c *config) { c.reclaim = length } }

// WithoutHeartbeat asks for a lease that is not kept alive before [Lease.StartHeartbeat].
func WithoutHeartbeat() Option { return func(c *config) { c.isKept = false } }

// Namespace is that of all locks of a client.
func Namespace(name string) Option { return func(c *config) { c.namespace = name } }

// Token is a secret by which the client is known.
func Token(token string) Option { return func(c *config) { c.token = &token } }

// TokenFile is a file with that secret. It is read again when it has changed, and when the server does not know the token.
func TokenFile(file string) Option { return func(c *config) { c.tokenFile = &file } }

// AllowCleartextToken sends the token to http servers on other machines too, where all on the way can read it.
func AllowCleartextToken() Option { return func(c *config) { c.allowsCleartext = true } }

// CACert is a file with the authorities that are trusted, in place of those of the system.
func CACert(file string) Option { return func(c *config) { c.cacert = file } }

// TLS is how https servers are spoken to, in place of [CACert].
func TLS(with *tls.Config) Option { return func(c *config) { c.tls = with } }

// Patience is how long a request is tried before it counts as unreachable; a wait in line is no part of it.
func Patience(length time.Duration) Option { return func(c *config) { c.settings.Patience = length } }

// HeartbeatEverySixth sends heartbeats after a sixth of the ttl in place of a third, to survive longer outages.
func HeartbeatEverySixth() Option { return func(c *config) { c.settings.HeartbeatPart = 6 } }

// WithClock counts leases on another clock, for tests.
func WithClock(clock Clock) Option { return func(c *config) { c.clock = clock } }

// Client is a client of one or more servers, safe for goroutines, which share one. It connects in the background, with the
// first thing that is asked.
type Client struct {
	keeper *keeper
	config config
	query  string
	nonce  string
}

// New makes a client of a server, or of several with commas between them.
func New(servers string, options ...Option) (*Client, error) {
	c := config{ttl: DefaultTTL, isKept: true, namespace: "default", settings: machine.DefaultSettings(), clock: systemClock{}}
	for _, option := range options {
		option(&c)
	}
	parsed, err := parseServers(servers)
	if err != nil {
		return nil, err
	}
	access, err := newAccess(parsed, &c)
	if err != nil {
		return nil, err
	}
	if c.settings.Patience <= 0 {
		return nil, usage("the patience must be positive")
	}
	k := newKeeper(parsed, c.settings, access, c.clock)
	return &Client{k, c, "?namespace=" + queryValue(c.namespace), random(4)}, nil
}

// FromEnv makes a client as the environment says: LEASEHOLD_ADDR, LEASEHOLD_NAMESPACE, LEASEHOLD_TOKEN or
// LEASEHOLD_TOKEN_FILE, LEASEHOLD_ALLOW_CLEARTEXT_TOKEN=1, LEASEHOLD_CACERT. What is given counts more.
func FromEnv(options ...Option) (*Client, error) {
	servers := os.Getenv("LEASEHOLD_ADDR")
	if servers == "" {
		servers = "http://127.0.0.1:8080"
	}
	var given config
	for _, option := range options {
		option(&given)
	}
	var found []Option
	token, file := os.Getenv("LEASEHOLD_TOKEN"), os.Getenv("LEASEHOLD_TOKEN_FILE")
	switch {
	case given.token != nil || given.tokenFile != nil:
	case token != "" && file != "":
		return nil, usage("set LEASEHOLD_TOKEN or LEASEHOLD_TOKEN_FILE, not both")
	case token != "":
		found = append(found, Token(token))
	case file != "":
		found = append(found, TokenFile(file))
	}
	if os.Getenv("LEASEHOLD_ALLOW_CLEARTEXT_TOKEN") == "1" {
		found = append(found, AllowCleartextToken())
	}
	if namespace := os.Getenv("LEASEHOLD_NAMESPACE"); namespace != "" {
		found = append(found, Namespace(namespace))
	}
	if cacert := os.Getenv("LEASEHOLD_CACERT"); cacert != "" {
		found = append(found, CACert(cacert))
	}
	return New(servers, append(found, options...)...)
}

// Close gives everything back and waits until the server has heard it; no longer than the client's patience. What is not
// given back by then lapses.
func (c *Client) Close() error {
	c.keeper.close()
	return nil
}

// Lock is how a lock is asked for. Its name is the canonical text of what it covers: job/nightly, path:/srv/a/**,
// inode:42@100..200.
func (c *Client) Lock(name string, options ...Option) *Lock {
	lock := c.lock(formLock, nil, options)
	lock.claims = []Claim{{name, lock.config.mode, lock.config.permits}}
	return lock
}

// Set is how several locks are asked for, all or nothing, under one lease and one token.
func (c *Client) Set(names ...string) *Lock {
	var claims []Claim
	for _, name := range names {
		claims = append(claims, Claim{Lock: name})
	}
	return c.SetOf(claims)
}

// SetOf is Set, for locks of which some are shared or have permits.
func (c *Client) SetOf(claims []Claim, options ...Option) *Lock {
	return c.lock(formSet, claims, options)
}

func (c *Client) lock(form form, claims []Claim, options []Option) *Lock {
	lock := &Lock{client: c, config: c.config, form: form, claims: claims}
	for _, option := range options {
		option(&lock.config)
	}
	return lock
}

func (c *Client) ownerOr(owner string) string {
	if owner != "" {
		return owner
	}
	return fmt.Sprintf("%d-%s-%s", os.Getpid(), c.nonce, random(4))
}

func random(bytes int) string {
	read := make([]byte, bytes)
	// It never fails where programs can run at all.
	if _, err := rand.Read(read); err != nil {
		panic(err)
	}
	return hex.EncodeToString(read)
}
