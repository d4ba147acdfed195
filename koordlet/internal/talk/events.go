// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/journal"
)

// Limits of /events, as upstream has them by default.
const (
	defaultEvents = 256
	maxEvents     = 2048
)

// RouteOptions of Routes.
type RouteOptions struct {
	// RunDir has the ledgers.
	RunDir string
	// Now is the wall clock; time.Now by default.
	Now func() time.Time
	// Profiles adds /debug/pprof.
	Profiles bool
}

// Routes are what the agent answers beside /metrics and /healthz: the audit at /events and, if wanted, profiles.
func Routes(o RouteOptions) []metrics.Route {
	if o.Now == nil {
		o.Now = time.Now
	}
	out := []metrics.Route{{Pattern: "GET /events", Handler: &events{runDir: o.RunDir, now: o.Now}}}
	if o.Profiles {
		for pattern, f := range map[string]http.HandlerFunc{
			"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/profile": pprof.Profile, "GET /debug/pprof/symbol": pprof.Symbol,
			"GET /debug/pprof/trace": pprof.Trace,
		} {
			out = append(out, metrics.Route{Pattern: pattern, Handler: f})
		}
		slices.SortFunc(out, func(a, b metrics.Route) int { return strings.Compare(a.Pattern, b.Pattern) })
	}
	return out
}

// events answers with the newest records of the ledgers and of the audit, newest first: JSON lines, or one object {"Events": […]} for who accepts
// application/json, as upstream. Parameters: size, 256 when not given, at most 2048; since, a time (RFC 3339) or how long
// ago (90s, 2h).
type events struct {
	runDir string
	now    func() time.Time
	// busy lets one question in at a time: each may hold some megabytes.
	busy sync.Mutex
}

// ServeHTTP implements http.Handler.
func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size, since, err := parseQuery(r.URL.Query(), e.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !e.busy.TryLock() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another question is being answered", http.StatusServiceUnavailable)
		return
	}
	defer e.busy.Unlock()
	writes, err := ledger.Tail(e.runDir, size, since)
	happened, errAudit := ledger.Tail(auditDir(e.runDir), size, since)
	err = errors.Join(err, errAudit)
	records := newest(writes, happened, size)
	if err != nil && len(records) == 0 {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if acceptsJSON(r.Header.Values("Accept")) {
		w.Header().Set("Content-Type", "application/json")
		_ = enc.Encode(struct{ Events []journal.Record }{records}) // an error is the reader's going away
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for i := range records {
		if enc.Encode(&records[i]) != nil {
			return
		}
	}
}

// parseQuery reads the parameters of /events.
func parseQuery(q url.Values, now time.Time) (size int, since time.Time, err error) {
	size = defaultEvents
	if s := q.Get("size"); s != "" {
		if size, err = strconv.Atoi(s); err != nil || size < 1 || size > maxEvents {
			return 0, since, fmt.Errorf("size %q is no number from 1 to %d", s, maxEvents)
		}
	}
	s := q.Get("since")
	if s == "" {
		return size, since, nil
	}
	if ago, err := time.ParseDuration(s); err == nil {
		return size, now.Add(-ago), nil
	}
	// A "+" of a time zone that was not escaped has become a space.
	if since, err = time.Parse(time.RFC3339, strings.ReplaceAll(s, " ", "+")); err != nil {
		return 0, since, fmt.Errorf("since %q is neither a time such as 2026-05-01T12:00:00Z nor a duration such as 90s", s)
	}
	return size, since, nil
}

// acceptsJSON reports whether a header names application/json.
func acceptsJSON(accept []string) bool {
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.TrimSpace(kind) == "application/json" {
				return true
			}
		}
	}
	return false
}
