// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"errors"
	"path"
	"slices"
	"strconv"
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

// Apps are the host applications whose cgroups are known, in the order of the strategy. Of two with one name, or with cgroups of
// which one is in the other, the first counts: what they use would be counted twice. Cgroups in the kubelet's directories are known
// as soon as one pod runs. problems name those that are left alone for good, and why.
func Apps(v *node.View, members []engine.Member) (apps []App, problems []string) {
	all := v.Strategy.HostApplications
	if len(all) == 0 {
		return nil, nil
	}
	at := roots(members)
	apps = make([]App, 0, len(all))
	for i := range all {
		dir, err := hostapp.Cgroup(&all[i], at)
		if errors.Is(err, hostapp.ErrUnknown) {
			continue
		}
		if err == nil {
			err = apart(apps, all[i].Name, dir)
		}
		if err != nil {
			problems = append(problems, "hostApplications: "+strconv.Quote(all[i].Name)+": "+err.Error())
			continue
		}
		apps = append(apps, App{&all[i], dir})
	}
	return apps, problems
}

// apart reports an application that comes before, of the same name or with a cgroup that is not apart from dir.
func apart(before []App, name, dir string) error {
	for i := range before {
		switch o := &before[i]; {
		case o.Name == name:
			return errors.New("the name is another's")
		case hostapp.Within(dir, o.Cgroup), hostapp.Within(o.Cgroup, dir):
			return errors.New("its cgroup " + dir + " is not apart from " + o.Cgroup + " of " + strconv.Quote(o.Name))
		}
	}
	return nil
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
	apps, _ := Apps(f.View, f.Members)
	for _, app := range apps {
		used := f.cpu(sample.OfHostApp(app.Name))
		if !used.OK {
			continue
		}
		sum := &a.lsApps
		if app.QoS == protocol.QoSBE.String() {
			sum = &a.beApps
		}
		if class := f.bestEffort(); class != "" && hostapp.Within(app.Cgroup, class) {
			a.below += used.V
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

// appsPlan is what the cgroups of host applications must have. What was ours and is no longer wanted is given back.
func appsPlan(f *Facts, s *State, out *Outcome) {
	apps, problems := Apps(f.View, f.Members)
	out.AppProblems = problems
	if len(apps) == 0 && len(s.Apps) == 0 {
		return
	}
	v := *f.View
	v.Dynamic = out.Dynamic
	v.Dynamic.Known = true // what has just been decided holds for them at once
	for _, app := range apps {
		out.Apps = append(out.Apps, hostapp.Decide(&v, app.HostApplication, app.Cgroup)...)
	}
	var held []HeldSetting
	for i := range out.Apps {
		if t := &out.Apps[i]; !t.Observe {
			held = append(held, HeldSetting{App: t.Target.Name, Cgroup: t.Target.Cgroup, Knob: t.Knob.String()})
		}
	}
	for _, was := range s.Apps {
		k, known := plan.ParseKnob(was.Knob)
		if !known || slices.Contains(held, was) {
			continue
		}
		if value, owner, ok := neutral(f, k); ok {
			out.Back = append(out.Back, plan.Setting{
				Target: plan.Target{Level: plan.LevelQoS, Cgroup: was.Cgroup, Name: was.App}, Knob: k, Value: value, Owner: owner,
				Reason: "no longer wanted of a host application",
			})
			s.owe(was, f.Now)
		}
	}
	s.Apps = held
}

// neutral is the value of a knob of hostapp.Decide in a cgroup that nobody has written to.
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
