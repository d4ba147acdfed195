// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/systemd"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Units sets properties of the systemd unit of a cgroup.
type Units struct {
	Bus *systemd.Units
	// Container and Pod are the weight formulas of the levels.
	Container, Pod unit.WeightFormula
	// Cgroup is the mount point of cgroup2; empty keeps no file.
	Cgroup string
	// V1 says that the controllers are on cgroup v1, where systemd never writes to cpu.idle.
	V1 bool
}

var _ apply.Units = Units{}

// A changed property makes systemd write every attribute of the unit that it manages. memory.oom.group is one (OOMPolicy=,
// since version 253) that no property can set on a running scope, and the kubelet's 1 would become 0. The queue that writes
// runs shortly after the reply, so the file is watched for a while and put back.
const (
	keptFile  = "memory.oom.group"
	keepFor   = 200 * time.Millisecond
	keepEvery = 10 * time.Millisecond
)

// Has implements apply.Units.
func (u Units) Has(cgroup string, k plan.Knob) bool {
	_, err := systemd.Unit(cgroup)
	return err == nil && systemd.Mapped(k) && !(u.V1 && k == plan.CPUIdle)
}

// Held implements apply.Units.
func (u Units) Held(ctx context.Context, cgroup string) (map[plan.Knob]string, error) {
	name, err := systemd.Unit(cgroup)
	if err != nil {
		return nil, err
	}
	return u.Bus.Held(ctx, name)
}

// Set makes the settings of one cgroup properties of its unit.
func (u Units) Set(ctx context.Context, cgroup string, settings []plan.Setting) error {
	name, err := systemd.Unit(cgroup)
	if err != nil {
		return err
	}
	weight := u.Pod
	if len(settings) > 0 && settings[0].Target.Level == plan.LevelContainer {
		weight = u.Container
	}
	file, before := u.kept(cgroup)
	err = u.Bus.SetProperties(ctx, name, settings, weight)
	if file == "" {
		return err
	}
	return errors.Join(err, keep(ctx, file, before))
}

// kept is the file to watch and its content; "" where there is none to lose.
func (u Units) kept(cgroup string) (file, content string) {
	if u.Cgroup == "" || root.CheckRel(cgroup) != nil {
		return "", ""
	}
	file = u.Cgroup + "/" + cgroup + "/" + keptFile
	content, err := root.Read(file)
	if content = strings.TrimSpace(content); err != nil || content == "0" {
		return "", ""
	}
	return file, content
}

// keep puts the content back whenever it is another, until keepFor has passed. A cgroup that is gone has nothing to keep.
func keep(ctx context.Context, file, content string) error {
	end := time.NewTimer(keepFor)
	defer end.Stop()
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		now, err := root.Read(file)
		if err != nil {
			return nil
		}
		if strings.TrimSpace(now) != content {
			if err := root.Write(file, content); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return nil
		case <-tick.C:
		}
	}
}
