// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/model/workload"
)

// A watch whose cgroup was removed is forgotten, so that Follow sets another when the path comes back; one that has already taken its
// place stays.
func TestGoneWatchIsForgotten(t *testing.T) {
	t.Parallel()
	old, young := &psi.Watch{}, &psi.Watch{}
	p := &Pressure{watches: map[string]*psi.Watch{"/a": old, "/b": young}}
	var none *psi.Watch
	p.gone("/a", &old)
	p.gone("/b", &old)
	p.gone("/b", &none)
	if watched, _ := p.State(); len(watched) != 1 || watched[0] != "/b" {
		t.Errorf("watched: %q", watched)
	}
}

// Who is not watched is told of, until he is or has gone.
func TestWhoIsNotWatchedIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := NewPressure(psi.Trigger{Kind: psi.Some, Stall: 100 * time.Millisecond, Window: time.Second},
		func(cgroup string) string { return filepath.Join(dir, cgroup) }, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() {
		if err := p.Run(ctx); err != nil { // frees what was taken
			t.Error(err)
		}
	}()
	var members []engine.Member
	for i := range maxTriggers + 3 {
		members = append(members, engine.Member{Pod: &workload.Pod{Namespace: "default", Name: fmt.Sprint("p", i), Cgroup: fmt.Sprint("/p", i)}})
	}
	members[0].Pod.Ask.QoS = protocol.QoSBE
	err = p.Follow(members)
	if err == nil || !strings.Contains(err.Error(), "2 pods wait for the tick: only 256 are watched") || !strings.Contains(err.Error(), "pod default/p256 waits for the tick: ") {
		t.Errorf("%v", err)
	}
	if _, refused := p.State(); refused == nil || refused.Error() != err.Error() {
		t.Errorf("the state tells %v, Follow %v", refused, err)
	}
	members[1].Pod.Cgroup = "/gone/p1"
	if err := p.Follow(members[:2]); err != nil {
		t.Errorf("nobody is left: %v", err)
	}
	if _, refused := p.State(); refused != nil {
		t.Errorf("nobody is left: %v", refused)
	}
}

// A file that took no trigger is asked again after five turns, and the pod is told of in each; who comes back is asked at once.
func TestRefusedTriggersAreSeldomTried(t *testing.T) {
	t.Parallel()
	dir, asked := t.TempDir(), 0
	p, err := NewPressure(psi.Trigger{Kind: psi.Some, Stall: 100 * time.Millisecond, Window: time.Second},
		func(string) string { asked++; return filepath.Join(dir, "cpu.pressure") }, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	pod := []engine.Member{{Pod: &workload.Pod{Namespace: "default", Name: "a", Cgroup: "/a"}}}
	for turn, want := range []int{1, 1, 1, 1, 1, 1, 2, 2} {
		if err := p.Follow(pod); err == nil || asked != want {
			t.Errorf("turn %d: asked %d times, want %d; told %v", turn, asked, want, err)
		}
	}
	if err := p.Follow(nil); err != nil {
		t.Errorf("nobody is left: %v", err)
	}
	if err := p.Follow(pod); err == nil || asked != 3 {
		t.Errorf("a pod that comes: asked %d times, told %v", asked, err)
	}
}
