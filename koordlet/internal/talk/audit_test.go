// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/oomscore"
)

// evicted is an eviction as it is told.
func evicted(outcome string, often bool, err error) Event {
	return Event{
		What: EventEviction, Outcome: outcome, By: "BEMemoryEvict", UID: "u", Name: "default/spark", Often: often, Err: err,
		Reason: "104 GiB of 128 GiB (81.25%) used, releases 2 GiB",
	}
}

// noted is an audit with these events at wall, one a second.
func noted(t *testing.T, dir string, events ...Event) {
	t.Helper()
	a, err := OpenAudit(dir, "koordlet", "this boot")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if err := a.Note(wall.Add(time.Duration(i)*time.Second), e); err != nil {
			t.Error(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// What was evicted, refused or only observed stands among the writes, in the order of time, with pod, reason and figures.
func TestEventsTellEvictions(t *testing.T) {
	t.Parallel()
	dir := audited(t, 2) // at wall - 1 s and wall
	noted(t, dir, evicted("observed", true, nil), evicted("refused", true, errors.New("budget: cannot evict pod")), evicted("accepted", false, nil))
	w := ask(t, RouteOptions{RunDir: dir}, "/events")
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		var r journal.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join([]string{r.Target.Name, r.Knob, r.Want, r.Owner, r.Reason, string(r.Via), r.Err}, "|"))
	}
	const figures = "|BEMemoryEvict|104 GiB of 128 GiB (81.25%) used, releases 2 GiB|event|"
	want := []string{
		"default/spark|eviction|accepted" + figures,
		"default/spark|eviction|refused" + figures + "budget: cannot evict pod",
		"default/web|cpu.quota|100000||1|direct|",
		"default/spark|eviction|observed" + figures,
		"default/web|cpu.quota|100000||0|direct|",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if w := ask(t, RouteOptions{RunDir: dir}, "/events?size=1&since=1s"); strings.Count(w.Body.String(), "\n") != 1 || !strings.Contains(w.Body.String(), "accepted") {
		t.Errorf("newest: %s", w.Body)
	}
}

// Nobody who reads the ledgers of writes, to restore them say, meets an event.
func TestEventsAreNoWrites(t *testing.T) {
	t.Parallel()
	dir := audited(t, 1)
	noted(t, dir, evicted("accepted", false, nil))
	records, torn, err := ledger.ReadAll(dir)
	if err != nil || torn != 0 || len(records) != 1 || records[0].Via != journal.ViaDirect {
		t.Errorf("%+v, %d torn, %v", records, torn, err)
	}
}

// Pods come and go, and the file does not grow with all that ever were.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := OpenAudit(dir, "koordlet", "this boot")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	events := make([]Event, maxKept+5)
	for i := range events {
		events[i] = evicted("accepted", false, nil)
		events[i].UID = strconv.Itoa(i)
	}
	if err := a.Note(wall, events...); err != nil {
		t.Fatal(err)
	}
	if err := a.l.Compact(); err != nil {
		t.Fatal(err)
	}
	records, err := ledger.Tail(auditDir(dir), 2*maxKept, time.Time{})
	if err != nil || len(records) != maxKept || records[0].Target.Pod != strconv.Itoa(maxKept+4) {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// A budget that refuses for days is told every ten minutes.
func TestOftenIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := OpenAudit(dir, "koordlet", "this boot")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	refused, other := evicted("refused", true, nil), evicted("refused", true, nil)
	other.UID = "v"
	for _, step := range []struct {
		after time.Duration
		e     Event
	}{
		{0, refused}, {time.Second, refused}, {time.Second, other}, {9 * time.Minute, refused}, {oftenEvery, refused},
		{-time.Hour, refused}, // the clock was set back
		{time.Second - time.Hour, refused},
		{time.Second, evicted("accepted", false, nil)}, {time.Second, evicted("accepted", false, nil)},
	} {
		if err := a.Note(wall.Add(step.after), step.e); err != nil {
			t.Fatal(err)
		}
	}
	records, err := ledger.Tail(auditDir(dir), 100, time.Time{})
	if err != nil || len(records) != 6 {
		t.Errorf("%d records, %v", len(records), err)
	}
	for i := range 3 * maxOften {
		other.UID = strings.Repeat("x", i)
		if !a.news(&other, wall.Add(2*time.Hour)) {
			t.Fatal("another pod was taken for the same")
		}
	}
	if len(a.told) > maxOften {
		t.Errorf("%d remembered", len(a.told))
	}
}

// An audit that cannot be opened says why, costs nobody anything, and is opened as soon as it can; what was noted before is there then.
func TestAuditThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		noted(t, dir, evicted("accepted", false, nil)) // in an earlier life
		path, away := auditDir(dir), filepath.Join(dir, "away")
		if err := errors.Join(os.Rename(path, away), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		a, err := OpenAudit(dir, "koordlet", "this boot")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Closed(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("it does not say that %s cannot be used: %v", path, err)
		}
		if err := a.Note(wall, evicted("accepted", false, nil)); err != nil {
			t.Errorf("who tells of an eviction is told %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		opened, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- a.Run(ctx, func() {
				_ = a.Note(wall, evicted("refused", false, nil)) // who reads now what stands there must not meet what is new
				close(opened)
			})
		}()
		time.Sleep(3*openEvery + openEvery/2) // the bubble's time: not when it tries, which would make the directory between the two calls below
		if a.Closed() == nil {
			t.Error("a file was opened as a directory")
		}
		if err := errors.Join(os.Remove(path), os.Rename(away, path)); err != nil {
			t.Fatal(err)
		}
		<-opened
		synctest.Wait()
		if err := errors.Join(a.Closed(), a.Note(wall.Add(time.Minute), evicted("gone", false, nil))); err != nil {
			t.Error(err)
		}
		got, err := a.Noted(EventEviction, func(*journal.Record) bool { return true })
		if err != nil || len(got) != 2 || got[0].Want != "gone" || got[1].Want != "accepted" {
			t.Errorf("noted: %+v, %v", got, err)
		}
		stop()
		if err := errors.Join(<-ended, a.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestRooms(t *testing.T) {
	t.Parallel()
	name := func(uid string) string { return "default/" + uid }
	raise := func(container, why string) burst.Raise {
		return burst.Raise{Pod: "web", Container: container, Reason: why}
	}
	var r Rooms
	for _, step := range []struct {
		raises []burst.Raise
		highs  []memqos.High
		scores []oomscore.Score
		want   []string
	}{
		{nil, nil, nil, nil},
		{[]burst.Raise{raise("c1", "tuned: throttled for 60 s"), {Pod: "web", Plus: 5, Reason: "sum"}}, nil, nil, []string{"c1 cpu-burst given tuned: throttled for 60 s"}},
		{[]burst.Raise{raise("c1", "more")}, []memqos.High{{Container: "c2", Pod: "db", Reason: "stalls"}}, nil, []string{"c2 memory-high given stalls"}},
		{nil, []memqos.High{{Container: "c2", Pod: "db", Reason: "stalls"}}, nil, []string{"c1 cpu-burst taken back no longer needed or possible; it had been given because: more"}},
		{nil, []memqos.High{{Container: "c2", Pod: "db", Less: true, Reason: "tight"}}, nil, []string{
			"c2 memory-high taken back no longer needed or possible; it had been given because: stalls", "c2 memory-high held tight",
		}},
		{nil, nil, []oomscore.Score{{Container: "c1", Pod: "web", Value: 943, Base: 985, Reason: "near its limit"}}, []string{
			"c2 memory-high let go no longer needed or possible; it had been held because: tight", "c1 oom-score given near its limit",
		}},
		{nil, nil, nil, []string{"c1 oom-score taken back no longer needed or possible; it had been given because: near its limit"}},
	} {
		var events []Event
		r, events = r.Give(step.raises, step.highs, step.scores, name)
		var got []string
		for _, e := range events {
			got = append(got, strings.Join([]string{e.Container, e.What, e.Outcome, e.Reason}, " "))
			if rec := e.record(wall); rec.Target.Level != plan.LevelContainer || rec.Target.Name != name(e.UID) || e.Often {
				t.Errorf("%+v", rec)
			}
		}
		if d := cmp.Diff(step.want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestDisturbances(t *testing.T) {
	t.Parallel()
	got := Disturbances([]interference.Event{{Pod: "u", Name: "default/web", Text: "disturbed: cpu pressure 35%"}})
	want := []Event{{What: EventInterference, By: EventInterference, UID: "u", Name: "default/web", Reason: "disturbed: cpu pressure 35%"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
