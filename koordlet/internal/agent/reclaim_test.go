// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	members := []engine.Member{
		{Pod: &workload.Pod{UID: "p"}, Containers: []*workload.Container{{ID: "a", Cgroup: "/kubepods/podp/a"}, {ID: "b", Cgroup: "/kubepods/podp/b"}}},
	}
	got := tasks([]memqos.Reclaim{{Container: "b", Bytes: 2}, {Container: "gone", Bytes: 3}, {Container: "a", Bytes: 1}}, members)
	want := []task{{"b", "/kubepods/podp/b", 2}, {"a", "/kubepods/podp/a", 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(task{})); diff != "" {
		t.Error(diff)
	}
}

// A round runs beside the caller; what it has brought is told once.
func TestReclaimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		r := &reclaimer{do: func(_ context.Context, cgroup string, amount unit.Bytes) (unit.Bytes, error) {
			time.Sleep(time.Second)
			if cgroup == "/bad" {
				return 0, refused
			}
			return amount / 2, nil
		}}
		r.start(t.Context(), nil)
		if _, busy, _ := r.take(); busy {
			t.Error("busy with nothing")
		}
		r.start(t.Context(), []task{{"a", "/a", 100}, {"bad", "/bad", 100}})
		if got, busy, err := r.take(); !busy || got != nil || err != nil {
			t.Errorf("at once: %v, busy %v, %v", got, busy, err)
		}
		r.wait()
		got, busy, err := r.take()
		if diff := cmp.Diff(map[string]unit.Bytes{"a": 50}, got); diff != "" || busy || !errors.Is(err, refused) {
			t.Errorf("afterwards: busy %v, %v, %s", busy, err, diff)
		}
		if got, _, err = r.take(); got != nil || err != nil {
			t.Errorf("told twice: %v, %v", got, err)
		}
		r.start(t.Context(), []task{{"bad", "/bad", 100}})
		r.wait()
		if got, _, err = r.take(); got == nil || !errors.Is(err, refused) {
			t.Errorf("all of it failed: %v, %v", got, err)
		}
	})
}

// A round that failed is the failure of one tick, and is over with a round that did not.
func TestReclaimFailsOnce(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	var err error
	a := New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoReclaim: func() string { return "" },
		Reclaim: func(context.Context, string, unit.Bytes) (unit.Bytes, error) { return 0, err },
	})
	for i, c := range []struct {
		round  bool
		err    error
		failed bool
		told   string
	}{
		{false, nil, false, ""}, {true, refused, true, "refused"}, {false, nil, false, "refused"}, {true, refused, true, "refused"}, {true, nil, false, ""},
		{false, nil, false, ""},
	} {
		if err = c.err; c.round {
			a.reclaim.start(t.Context(), []task{{"a", "/a", 100}})
			a.reclaim.wait()
		}
		a.failed = false
		if a.reclaimed(&decide.Facts{}); a.failed != c.failed || a.told["reclaim memory"] != c.told {
			t.Errorf("tick %d: failed %v, told %q; want %v, %q", i, a.failed, a.told["reclaim memory"], c.failed, c.told)
		}
	}
}

// A round that takes long ends after a while; what it did not reach says nothing.
func TestReclaimerIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := &reclaimer{do: func(ctx context.Context, _ string, _ unit.Bytes) (unit.Bytes, error) {
			<-ctx.Done()
			return 7, nil
		}}
		r.start(t.Context(), []task{{"a", "/a", 100}, {"b", "/b", 100}})
		r.wait()
		if got, _, err := r.take(); len(got) != 1 || got["a"] != 7 || err != nil || time.Since(begin) != reclaimFor {
			t.Errorf("%v after %s, %v", got, time.Since(begin), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r.start(ctx, []task{{"a", "/a", 100}})
		cancel()
		r.wait() // the end of the agent does not wait for the bound
		if time.Since(begin) != reclaimFor {
			t.Errorf("ended after %s", time.Since(begin))
		}
	})
}
