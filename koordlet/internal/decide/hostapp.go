// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"path"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/policy/hostapp"
)

// App is a host application of the strategy with its cgroup on this node.
type App struct {
	*strategy.HostApplication
	Cgroup string
}

// Apps are the host applications whose cgroups are known, in the order of the strategy. Of two with one name or one cgroup
// the first counts. Cgroups in the kubelet's directories are known as soon as one pod runs.
func Apps(v *node.View, members []engine.Member) []App {
	all := v.Strategy.HostApplications
	if len(all) == 0 {
		return nil
	}
	at := roots(members)
	out := make([]App, 0, len(all))
	for i := range all {
		dir, ok := hostapp.Cgroup(&all[i], at)
		twice := slices.ContainsFunc(out, func(o App) bool { return o.Name == all[i].Name || o.Cgroup == dir })
		if ok && !twice {
			out = append(out, App{&all[i], dir})
		}
	}
	return out
}

// roots are the kubelet's directories, as a pod's tells: those of the classes have one form for each driver.
func roots(members []engine.Member) hostapp.Roots {
	for i := range members {
		p, ok := cgrouppath.OfPod(members[i].Pod.Cgroup)
		if !ok {
			continue
		}
		class := func(name string) string {
			if !p.Systemd {
				return p.Root + "/" + name
			}
			return p.Root + "/" + strings.TrimSuffix(path.Base(p.Root), ".slice") + "-" + name + ".slice"
		}
		return hostapp.Roots{Kubepods: p.Root, Burstable: class("burstable"), BestEffort: class("besteffort")}
	}
	return hostapp.Roots{}
}

// apps adds up what host applications use. One that was not measured counts as the system's.
func (a *accounts) apps(f *Facts) {
	for _, app := range Apps(f.View, f.Members) {
		used := f.cpu(sample.OfHostApp(app.Name))
		if !used.OK {
			continue
		}
		sum := &a.lsApps
		if app.QoS == protocol.QoSBE.String() {
			sum = &a.beApps
		}
		sum.V, sum.OK = sum.V+used.V, true
	}
}

// HeldSetting is one value of a host application's cgroup that is ours.
type HeldSetting struct {
	App    string `json:"app"`
	Cgroup string `json:"cgroup"`
	Knob   string `json:"knob"`
}

// appsPlan is what the cgroups of host applications must have. What was ours and is no longer wanted goes back to what a
// cgroup has that nobody has written to.
func appsPlan(f *Facts, s *State, d *node.Dynamic) plan.Plan {
	apps := Apps(f.View, f.Members)
	if len(apps) == 0 && len(s.Apps) == 0 {
		return nil
	}
	v := *f.View
	v.Dynamic = *d
	v.Dynamic.Known = true // what has just been decided holds for them at once
	var out plan.Plan
	for _, app := range apps {
		out = append(out, hostapp.Decide(&v, app.HostApplication, app.Cgroup)...)
	}
	var held []HeldSetting
	for i := range out {
		if t := &out[i]; !t.Observe {
			held = append(held, HeldSetting{App: t.Target.Name, Cgroup: t.Target.Cgroup, Knob: t.Knob.String()})
		}
	}
	for _, was := range s.Apps {
		k, known := plan.ParseKnob(was.Knob)
		if !known || slices.Contains(held, was) {
			continue
		}
		if value, owner, ok := neutral(f, k); ok {
			out = append(out, plan.Setting{
				Target: plan.Target{Level: plan.LevelQoS, Cgroup: was.Cgroup, Name: was.App}, Knob: k, Value: value, Owner: owner,
				Reason: "no longer wanted of a host application",
			})
		}
	}
	s.Apps = held
	return out
}

// neutral is the value of a knob of hostapp.Decide as if we had never been there.
func neutral(f *Facts, k plan.Knob) (value plan.Value, owner protocol.Feature, ok bool) {
	switch k {
	case plan.CPUBvt, plan.CPUIdle:
		return plan.Int(0), protocol.FeatureIdentity, true
	case plan.CPUSetCPUs:
		all := f.all()
		return plan.Text(all.String()), protocol.FeatureCPUSet, !all.Empty()
	}
	return plan.Value{}, 0, false
}
