// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feed_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/feed"
	"github.com/koord-rt/koord-rt/model/workload"
)

var errGone = errors.New("gone")

// records is a runtime that holds what the test puts in, and notes which records were read.
type records struct {
	pods       []workload.ListedPod
	containers []workload.ListedContainer
	// gone are listed, and removed before their record is read; broken cannot be read.
	gone, broken map[string]bool
	read         []string
	// then, when set, comes behind the lists, and before any record is read.
	then func()
}

func (r *records) Sandboxes(context.Context) ([]workload.ListedPod, error) { return r.pods, nil }

func (r *records) Containers(context.Context) ([]workload.ListedContainer, error) {
	if r.then != nil {
		defer r.then()
	}
	return r.containers, nil
}

func (r *records) look(id string) error {
	r.read = append(r.read, id)
	switch {
	case r.gone[id]:
		return errGone
	case r.broken[id]:
		return errAway
	}
	return nil
}

func (r *records) Sandbox(_ context.Context, id string) (*workload.Pod, error) {
	return &workload.Pod{ID: id, UID: "uid-" + id, Cgroup: "/pod" + id}, r.look(id)
}

func (r *records) Record(_ context.Context, id string) (feed.Record, error) {
	state := r.containers[slices.IndexFunc(r.containers, func(c workload.ListedContainer) bool { return c.Container.ID == id })].Container.State
	return func(...*protocol.Applied) *workload.Container {
		return &workload.Container{ID: id, State: state, Cgroup: "/" + id}
	}, r.look(id)
}

func (r *records) IsGone(err error) bool { return errors.Is(err, errGone) }

func (r *records) put(pod string, ready bool, containers map[string]workload.State) {
	r.pods = append(r.pods, workload.ListedPod{Pod: &workload.Pod{ID: pod}, Ready: ready})
	for _, id := range slices.Sorted(maps.Keys(containers)) {
		r.containers = append(r.containers, workload.ListedContainer{Sandbox: pod, Container: &workload.Container{ID: id, State: containers[id]}})
	}
}

// members are "pod: containers" of what the engine knows to run.
func members(g *engine.Engine) (out []string) {
	for _, m := range g.Members() {
		line := m.Pod.ID + ":"
		for _, c := range m.Containers {
			line += " " + c.ID
		}
		out = append(out, line)
	}
	return out
}

func newEngine(t *testing.T) *engine.Engine {
	t.Helper()
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultKoordlet().Node
	return engine.New(engine.Options{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: m, Views: engine.NewViews(cfg, engine.Static{}, nil, "test"), ExitsUntold: true,
	})
}

// What is told while the runtime is asked for everything stands, whether its list lacks it or shows it as it was. Of what was known
// before, the list holds.
func TestFirstListIsOvertaken(t *testing.T) {
	t.Parallel()
	g, r := newEngine(t), &records{}
	tell := func(pod string, containers ...string) {
		var list []engine.Listed
		for _, id := range containers {
			list = append(list, engine.Listed{Sandbox: pod, Arrival: engine.Arrival{ID: id, Read: func(...*protocol.Applied) *workload.Container {
				return &workload.Container{ID: id, State: workload.StateRunning, Cgroup: "/" + id}
			}}})
		}
		g.Add([]*workload.Pod{{ID: pod, UID: "uid-" + pod, Cgroup: "/pod" + pod}}, list)
	}
	tell("a", "a0")
	tell("gone", "gone1")
	r.put("a", true, map[string]workload.State{"a1": workload.StateRunning})
	r.put("b", true, map[string]workload.State{"b1": workload.StateRunning, "b2": workload.StateCreated})
	r.then = func() {
		tell("b", "b2") // it has been started
		tell("c", "c1")
	}
	if _, err := (&feed.Lister{Engine: g, Runtime: r}).List(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a: a1", "b: b1 b2", "c: c1"}, members(g)); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	g := newEngine(t)
	const running, stopped, created = workload.StateRunning, workload.StateStopped, workload.StateCreated
	r := &records{}
	var dropped []string
	l := feed.Lister{Engine: g, Runtime: r, Dropped: func(id string) { dropped = append(dropped, id) }}
	for _, step := range []struct {
		what   string
		put    func()
		read   []string
		want   []string
		missed bool
	}{
		{"all of it", func() {
			r.put("a", true, map[string]workload.State{"a1": running, "a2": stopped})
			r.put("b", false, nil)
		}, []string{"a", "a1"}, []string{"a: a1"}, false},
		{"what is known is not read again", func() {
			r.put("a", true, map[string]workload.State{"a1": running})
		}, nil, []string{"a: a1"}, false},
		{"a new pod whose container has not started", func() {
			r.put("a", true, map[string]workload.State{"a1": running})
			r.put("c", true, map[string]workload.State{"c1": created})
		}, []string{"c", "c1"}, []string{"a: a1", "c:"}, false},
		{"it has", func() {
			r.put("a", true, map[string]workload.State{"a1": running})
			r.put("c", true, map[string]workload.State{"c1": running})
		}, []string{"c1"}, []string{"a: a1", "c: c1"}, false},
		{"one that cannot be read is asked for again, one that has just gone is not", func() {
			r.broken, r.gone = map[string]bool{"c2": true}, map[string]bool{"c3": true}
			r.put("a", true, map[string]workload.State{"a1": running})
			r.put("c", true, map[string]workload.State{"c1": running, "c2": running, "c3": running})
		}, []string{"c2", "c3"}, []string{"a: a1", "c: c1"}, true},
		{"a container has ended, and a pod", func() {
			r.put("a", false, map[string]workload.State{"a1": stopped})
			r.put("c", true, map[string]workload.State{"c1": stopped})
		}, nil, []string{"c:"}, false},
		{"a pod was removed", func() {
			r.put("c", true, nil)
		}, nil, []string{"c:"}, false},
	} {
		*r = records{}
		step.put()
		missed, err := l.List(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.read, r.read); diff != "" || missed != step.missed {
			t.Errorf("%s: missed %v, read (-want +got):\n%s", step.what, missed, diff)
		}
		if diff := cmp.Diff(step.want, members(g)); diff != "" {
			t.Errorf("%s: members (-want +got):\n%s", step.what, diff)
		}
	}
	if !slices.Contains(dropped, "a") {
		t.Errorf("told of %q only that they have gone", dropped)
	}
}
