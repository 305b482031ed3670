package page

import (
	"fmt"
	"testing"

	"github.com/locksidecar/locksidecar/acceptance/sidecar"
)

// TestTheGallery takes the pictures of docs/: a page on which there is
// something of everything, at two widths.
func TestTheGallery(t *testing.T) {
	t.Parallel()
	p := busyPod(t)
	for _, shot := range []struct {
		name          string
		width, height int64
		scheme        string
	}{
		{"status-page-wide", 1280, 1250, "light"}, {"status-page-wide-dark", 1280, 1250, "dark"},
		{"status-page-phone", 390, 1250, "dark"}, {"status-page-phone-light", 390, 1250, "light"},
	} {
		b := newTab(t)
		b.size(shot.width, shot.height, shot.scheme)
		b.prefer("prefers-color-scheme", shot.scheme, "prefers-reduced-motion", "reduce") // or bars are on their way
		b.open(p, "/")
		b.until("all is shown", `document.querySelectorAll("#waiting tbody tr").length === 4 && document.querySelector("#lost tbody tr")`)
		b.staysInside(shot.width)
		if png := b.shoot(shot.name); len(png) > 200<<10 {
			t.Errorf("%s has %d bytes", shot.name, len(png))
		}
		b.quiet()
	}
}

// busyPod is a sidecar with something of everything, beside another one.
func busyPod(t *testing.T) *sidecar.Process {
	t.Helper()
	redis := sidecar.StartRedis(t)
	us := sidecar.Start(t, append(redis.Settings(), "HOLDER=shop/orders-7d9f4-x2k8q")...)
	them := sidecar.Start(t, append(redis.Settings(), "HOLDER=shop/orders-7d9f4-m5wzt")...)
	us.Must(201, "POST", "/locks/cache/rebuild", "ttl=1s&owner=rebuild&note=every hour")
	redis.Do("DEL", "lock:cache/rebuild")
	us.AwaitRow("lost", "cache/rebuild", "rebuild")
	for _, lock := range [][2]string{
		{"nightly-report", "owner=report&note=figures for november&ttl=30s"},
		{"orders/4711", "owner=worker-1&note=capture payment&ttl=20s"},
		{"orders/4712", "owner=worker-2&note=capture payment&ttl=20s"},
		{"invoices/2026-11", "owner=billing&note=send 1,204 invoices&ttl=1m&max_hold=2h"},
		{"search/reindex", "owner=indexer&renew=false&ttl=5m&note=heartbeat by PATCH"},
		{"leader/scheduler", "owner=scheduler&ttl=15s&min_hold=10s"},
	} {
		us.Must(201, "POST", "/locks/"+lock[0], lock[1])
	}
	them.Must(201, "POST", "/locks/orders/4713", "owner=worker-1&note=capture payment")
	them.Must(201, "POST", "/locks/migrations", "owner=deploy&note=0042_add_index")
	for i, wait := range []struct {
		p          *sidecar.Process
		key, owner string
	}{{them, "migrations", "deploy-2"}, {us, "migrations", "deploy"}, {us, "orders/4713", "worker-1"}, {us, "orders/4713", "worker-2"}, {us, "orders/4711", "worker-3"}} {
		wait.p.Background("POST", "/locks/"+wait.key, fmt.Sprintf("owner=%s&wait=%dm", wait.owner, 5+i))
		wait.p.AwaitRow("waiting", wait.key, wait.owner)
	}
	return us
}
