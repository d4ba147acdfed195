// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/plan"
)

// bus keeps the properties of units.
type bus struct {
	wire.Units // for what has a property
	mu         sync.Mutex
	props      map[string]string
	err        error
}

func (b *bus) Set(_ context.Context, cgroup string, settings []plan.Setting) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range settings {
		b.props[fmt.Sprintf("%s %s", path.Base(cgroup), settings[i].Knob)] = settings[i].Value.String()
	}
	return b.err
}

// The units get what the files have after a restore; a bus that cannot be reached is a step that failed.
func TestRestoreGivesUnitsBack(t *testing.T) {
	t.Parallel()
	h := colocated(t, "6.12")
	b := &bus{props: map[string]string{}}
	h.units = b
	out, err := h.run(t, "restore", "--dry-run")
	if err != nil || len(b.props) > 0 || !strings.Contains(out, "also as its unit's property") {
		t.Errorf("dry run: %v, %v\n%s", err, b.props, out)
	}
	b.err = errors.New("no bus")
	if out, err := h.run(t, "restore"); !errors.Is(err, ErrFound) || !strings.Contains(out, "a daemon-reload brings ours back") {
		t.Errorf("%v\n%s", err, out)
	}
	want := map[string]string{}
	for _, knob := range []plan.Knob{plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.MemoryHigh} {
		v, err := h.files(t).Read(plan.ID{Target: pod, Knob: knob})
		if err != nil {
			t.Fatal(err)
		}
		want[path.Base(podDir)+" "+knob.String()] = v.String()
	}
	got := map[string]string{}
	for k, v := range b.props {
		if strings.HasPrefix(k, path.Base(podDir)) {
			got[k] = v
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("properties of the pod's slice (-files +unit):\n%s", d)
	}
	if b.props[path.Base(appDir)+" cpuset.cpus"] == "0-3" {
		t.Errorf("the container's scope keeps our CPUs: %v", b.props)
	}
}
