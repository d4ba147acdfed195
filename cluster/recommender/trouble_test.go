// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
)

// TestAway: an API server that does not answer past the cache costs no history, and makes nobody say that there are no pods.
func TestAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "Deployment", "web")
	b.pod("web-1", "n1", "ReplicaSet", "web-abc", "1", "1Gi", "app")
	b.recommendation("set", "", "StatefulSet", "set") // owns its pods itself, and is asked for because it has none
	b.silent = errors.New("away")
	b.run(t, 2)
	b.says(t, "web", nil, []string{"NotEnoughHistory"})
	b.says(t, "set", nil, []string{"NotEnoughHistory"})
	b.silent, b.refuse = nil, errors.New("away")
	b.owned("ReplicaSet", "web-abc", "apps/v1", "Deployment", "web")
	b.run(t, 61)
	b.says(t, "web", nil, []string{"NotEnoughHistory"})
	b.silent, b.refuse = errors.New("away"), nil
	b.run(t, 1)
	if c, r := b.told("web"); len(c) != 1 || !reflect.DeepEqual(r, []string{"Measured", "Provided"}) {
		t.Errorf("%q, %q", c, r)
	}
	// What has gone is forgotten.
	b.recs, b.pods, b.world.metrics = nil, nil, nil
	b.run(t, 1)
	if len(b.entries)+len(b.reports)+len(b.owners.parent) != 0 {
		t.Errorf("left: %v, %v, %v", b.entries, b.reports, b.owners.parent)
	}
}

// TestCacheBehind: nothing is written twice because the cache does not have it yet. What the cache has then counts, whoever wrote it.
func TestCacheBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "StatefulSet", "web")
	b.behind = slices.Clone(b.recs)
	b.run(t, 3)
	if len(b.applied) != 1 {
		t.Errorf("applied %q while the cache lagged", b.applied)
	}
	b.behind = nil
	b.run(t, 1)
	if len(b.applied) != 1 {
		t.Errorf("applied %q", b.applied)
	}
	b.recs[0].Status, b.recs[0].ResourceVersion = v1alpha1.RecommendationStatus{}, "1000" // newer than ours
	b.run(t, 1)
	if len(b.applied) != 2 {
		t.Errorf("applied %q after somebody had taken the status away", b.applied)
	}
}

// TestForgetInTrouble: while some pods cannot be told, what nobody asks for is forgotten all the same, only later.
func TestForgetInTrouble(t *testing.T) {
	t.Parallel()
	o := newOwners(nil)
	begun := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	o.parent["old"], o.chosen["old"] = &parent{used: begun}, &choice{used: begun}
	for _, step := range []struct {
		after time.Duration
		whole bool
		left  int
	}{{time.Minute, false, 2}, {59 * time.Minute, false, 2}, {time.Hour, false, 0}} {
		o.begin(begun.Add(step.after))
		if o.end(step.whole); len(o.parent)+len(o.chosen) != step.left {
			t.Errorf("after %s: %d are left, want %d", step.after, len(o.parent)+len(o.chosen), step.left)
		}
	}
	o.parent["new"] = &parent{used: begun}
	o.begin(begun.Add(time.Second))
	if o.end(true); len(o.parent) != 0 {
		t.Error("all pods are known, and none asked for it")
	}
}

// TestRefusedWish: a node that cannot be asked keeps no other from being asked; an API server that refuses all is left alone.
func TestRefusedWish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "StatefulSet", "web")
	for i := range 3 * refusals {
		b.pod(fmt.Sprintf("web-%02d", i), fmt.Sprintf("n%02d", i), "StatefulSet", "web", "1", "1Gi", "app", "side")
	}
	b.refuseNode = "n00"
	b.run(t, 1)
	if n := len(b.applied); n != 3*refusals+1 { // the status too
		t.Errorf("%d were asked of %d: %q", n-1, 3*refusals, b.applied)
	}
	b.applied, b.refuse = nil, errors.New("no right")
	b.run(t, 1)
	if n := len(b.applied); n != refusals {
		t.Errorf("%d were asked, want %d: %q", n, refusals, b.applied)
	}
}

// TestHistoryUnreadable: a history that somebody has spoilt is named, and begins anew.
func TestHistoryUnreadable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "StatefulSet", "web")
	b.recs[0].Status.History = &v1alpha1.RecommendationHistory{Generation: 1, Containers: map[string]string{"app": "nothing"}}
	if err := remember(newEntryModel(), &b.recs[0]); err == nil || !strings.Contains(err.Error(), `container "app"`) || !strings.Contains(err.Error(), "begins anew") {
		t.Errorf("%v", err)
	}
	b.pod("web-0", "n1", "StatefulSet", "web", "1", "1Gi", "app")
	b.run(t, 61)
	if c, _ := b.told("web"); len(c) != 1 {
		t.Errorf("%q", c)
	}
}
