// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// audited is a run directory where n records stand, one a second, the last at wall, with the reasons "0", "1" ….
func audited(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	l, err := ledger.Open(dir, "koordlet", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var list []journal.Record
	for i := range n {
		list = append(list, journal.Record{
			Time: wall.Add(time.Duration(i+1-n) * time.Second), Target: plan.Target{Level: plan.LevelPod, Name: "default/web"},
			Knob: "cpu.quota", Want: "100000", Reason: fmt.Sprint(i), Via: journal.ViaDirect,
		})
	}
	if err := l.Append(list...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ask puts a question to the whole endpoint.
func ask(t *testing.T, o RouteOptions, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	o.Now = func() time.Time { return wall }
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for _, h := range header {
		r.Header.Add("Accept", h)
	}
	w := httptest.NewRecorder()
	metrics.Handler(prometheus.NewRegistry(), nil, Routes(o)...).ServeHTTP(w, r)
	return w
}

func TestEvents(t *testing.T) {
	t.Parallel()
	dir := audited(t, 3000)
	for query, want := range map[string]struct {
		n    int
		last string
	}{
		"":                                   {256, "2744"},
		"?size=3":                            {3, "2997"},
		"?size=2048":                         {2048, "952"},
		"?since=9s":                          {10, "2990"},
		"?since=2026-05-01T11:59:55Z":        {6, "2994"},
		"?since=2026-05-01T13:59:55%2B02:00": {6, "2994"},
		"?since=2026-05-01T13:59:55+02:00":   {6, "2994"},
		"?since=1h&size=2":                   {2, "2998"},
	} {
		w := ask(t, RouteOptions{RunDir: dir}, "/events"+query)
		lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
		if w.Code != http.StatusOK || len(lines) != want.n || w.Header().Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%q: code %d, %d lines, %s", query, w.Code, len(lines), w.Header())
			continue
		}
		for i, reason := range map[int]string{0: "2999", len(lines) - 1: want.last} {
			var r journal.Record
			if err := json.Unmarshal([]byte(lines[i]), &r); err != nil || r.Reason != reason || r.Target.Name != "default/web" {
				t.Errorf("%q: line %d: %v, %+v, want reason %s", query, i, err, r, reason)
			}
		}
	}
}

func TestEventsAsOneObject(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{audited(t, 5): 5, t.TempDir(): 0} {
		w := ask(t, RouteOptions{RunDir: dir}, "/events", "text/html", "text/plain, application/json;q=0.9")
		var got struct{ Events []journal.Record }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Events == nil || len(got.Events) != want {
			t.Errorf("%v: %s", err, w.Body)
		}
	}
	if w := ask(t, RouteOptions{RunDir: t.TempDir()}, "/events"); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("no ledger: %d %s", w.Code, w.Body)
	}
}

func TestEventsRefuses(t *testing.T) {
	t.Parallel()
	dir := audited(t, 1)
	for _, query := range []string{"size=0", "size=-1", "size=2049", "size=many", "size=1e3", "since=yesterday", "since=2026-05-01"} {
		if w := ask(t, RouteOptions{RunDir: dir}, "/events?"+query); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	notADirectory := t.TempDir()
	if err := os.WriteFile(filepath.Join(notADirectory, "ledger"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if w := ask(t, RouteOptions{RunDir: notADirectory}, "/events"); w.Code != http.StatusInternalServerError {
		t.Errorf("not a directory: %d %s", w.Code, w.Body)
	}
	e := &events{runDir: dir, now: time.Now}
	e.busy.Lock()
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/events", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("busy: %d", w.Code)
	}
}

func TestProfilesAreOffByDefault(t *testing.T) {
	t.Parallel()
	for on, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1"} {
			if w := ask(t, RouteOptions{RunDir: t.TempDir(), Profiles: on}, path); w.Code != want {
				t.Errorf("%s with profiles %t: %d", path, on, w.Code)
			}
		}
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("size=3&since=9s")
	f.Add("since=2026-05-01T12:00:00Z&size=00")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		size, since, err := parseQuery(q, wall)
		if err == nil && (size < 1 || size > maxEvents || q.Get("since") == "" && !since.IsZero()) {
			t.Fatalf("%q: %d since %s", raw, size, since)
		}
	})
}
