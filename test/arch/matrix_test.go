// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// cell is one feature on one cgroup version.
type cell struct {
	feature protocol.Feature
	version string
}

// noCookies is why make test does not show core scheduling on a kernel.
const noCookies = "every kernel of test/lab/versions.env has CONFIG_SCHED_CORE unset, which test/e2e's proveNoCookies reads in each one's configuration, and the host" +
	" cannot either; the scenario core-sched runs on paper and on the fake root, and in lab-vm-full on 6.12-own, which is compiled with it for a quarter of an hour"

// elsewhere says, for the cells of the matrix that no scenario shows on a real kernel, why not and what does instead.
var elsewhere = map[cell]string{
	{protocol.FeatureMemory, "v1"}:    "mainline's cgroup v1 has none of its knobs; policy/container and policy/pod test vendor kernels",
	{protocol.FeatureNetwork, "v1"}:   "it is the node's and not a container's: TestHostNetwork of test/e2e reads tc",
	{protocol.FeatureNetwork, "v2"}:   "it is the node's and not a container's: TestGuestNetwork of test/e2e reads tc",
	{protocol.FeatureCoreSched, "v1"}: noCookies,
	{protocol.FeatureCoreSched, "v2"}: noCookies,
}

// kernelLane runs scenarios on a real kernel.
type kernelLane struct {
	name, version, topology string
	has                     []string
	// only are the scenarios that it runs of those that fit.
	only *regexp.Regexp
}

// kernelLanes are the host, as design/lab.md has it (cgroup v1, two CPUs, no resctrl; on CI the scenarios fail on another), and the
// machines that run TestGuest and TestGuestSystemd of this name in a function of the VM lane: TestVM in make test, or TestFullVM. What only the one that
// is compiled with cookies has does not count.
func kernelLanes(t *testing.T, function, test string) []kernelLane {
	t.Helper()
	out := []kernelLane{{name: "host", version: scenario.HostVersion, topology: scenario.HostTopology, only: regexp.MustCompile("")}}
	for _, g := range vmTests(t, function) {
		if !g.name.MatchString("TestGuest"+test) && !g.name.MatchString("TestGuestSystemd"+test) {
			continue
		}
		l := kernelLane{name: g.machine, version: "v2", topology: "vm8", has: []string{scenario.NeedResctrl}, only: g.sub}
		if g.v1 {
			l.version = "v1"
		}
		out = append(out, l)
	}
	return out
}

// TestEveryFeatureIsShownOnBothVersions is the matrix of features and cgroup versions: for each cell a scenario that a lane of make
// test really runs plans the feature, and reads the file or attribute of that very setting back from the kernel; else the cell has a
// reason.
func TestEveryFeatureIsShownOnBothVersions(t *testing.T) {
	t.Parallel()
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	lanes := kernelLanes(t, "TestVM(", "Scenarios")
	if len(lanes) < 5 {
		t.Fatalf("%d lanes found: the search in vm_test.go is wrong", len(lanes))
	}
	shown := shownBy(all, lanes)
	for _, f := range protocol.Features() {
		for _, version := range []string{"v1", "v2"} {
			c := cell{f, version}
			switch why := elsewhere[c]; {
			case len(shown[c]) == 0 && why == "":
				t.Errorf("no lane runs a scenario that shows %s on cgroup %s", f, version)
			case len(shown[c]) > 0 && why != "":
				t.Errorf("%s on cgroup %s is shown by %v, yet is said not to be: %s", f, version, shown[c], why)
			default:
				t.Logf("%-18s %s: %s%s", f, version, strings.Join(shown[c], " "), why)
			}
		}
	}
}

// shownBy lists for each cell the scenarios with the lanes that run them, "SCENARIO@LANE".
func shownBy(all []scenario.Scenario, lanes []kernelLane) map[cell][]string {
	out := map[cell][]string{}
	for i := range all {
		s := &all[i]
		for _, l := range lanes {
			if _, fits := s.Fits(l.version, l.topology, l.has...); !fits || !l.only.MatchString(s.Name) {
				continue
			}
			features := readBack(s, l.version)
			slices.Sort(features)
			for _, f := range slices.Compact(features) {
				c := cell{f, l.version}
				out[c] = append(out[c], s.Name+"@"+l.name)
			}
		}
	}
	return out
}

// planLine is a setting of a wanted plan: level, target, knob, key, owner.
var planLine = regexp.MustCompile(`^(\w+) (\S+) ([a-z0-9_.]+)(?:\[([^\]]*)\])? = .* \(([a-z-]+): `)

// readBack lists the features whose settings the scenario reads back.
func readBack(s *scenario.Scenario, version string) (out []protocol.Feature) {
	eachRead(s, version, func(names ...string) {
		if f, ok := protocol.ParseFeature(names[1]); ok {
			out = append(out, f)
		}
	})
	return out
}

// eachRead tells of each planned setting that the scenario reads back.
func eachRead(s *scenario.Scenario, version string, tell func(knobAndOwner ...string)) {
	for line := range strings.Lines(s.WantPlan[version]) {
		m := planLine.FindStringSubmatch(line)
		if m == nil || strings.HasSuffix(strings.TrimSpace(line), " observe-only") {
			continue
		}
		if slices.ContainsFunc(s.Want[version], func(w scenario.Want) bool {
			return subjectOf(w) == m[1]+" "+m[2] && fileOf(m[3], m[4], version) == w.File
		}) {
			tell(m[3], m[5])
		}
	}
}

// subjectOf is a wanted line's target as plans print it.
func subjectOf(w scenario.Want) string {
	switch {
	case w.Group != "":
		return "group " + w.Group
	case w.Container != "":
		return "container default/" + w.Pod + "/" + w.Container
	}
	return "pod default/" + w.Pod
}

// fileOf is where a wanted line reads a knob.
func fileOf(knob, key, version string) string {
	k, _ := plan.ParseKnob(knob)
	switch k {
	case plan.SchedPolicy:
		return "@sched"
	case plan.OOMScoreAdj:
		return "@oom"
	case plan.CoreSchedCookie:
		return "@cookie"
	case plan.RDTClass:
		return "@resctrl"
	case plan.RDTSchemata:
		return key
	case plan.Env:
		return "@env " + key
	case plan.Device:
		return "@device " + key
	}
	for _, row := range cgroup.Table() {
		switch {
		case row.Knob != k:
		case version == "v1":
			return row.V1
		default:
			return row.V2
		}
	}
	return "none"
}

// A plan that is made and not read back shows nothing, nor does a scenario that no lane runs.
func TestTheMatrixReadsTheKernel(t *testing.T) {
	t.Parallel()
	const pods = "about\n-- pods.yaml --\nname: web\nuid: u1\ncontainers:\n- name: app\n"
	const planned = "-- want.plan.v2 --\ncontainer default/web/app cpu.burst = 5 (cpu-burst: why)\n"
	const read = planned + "-- want.v2 --\nweb/app cpu.max.burst 5\n"
	guest := kernelLane{name: "VM", version: "v2", topology: "vm8", only: regexp.MustCompile("^(x|y)$")}
	for text, want := range map[string]int{
		pods + read: 1,
		pods + planned + "-- want.v2 --\nweb cpu.max.burst 5\n": 0,
		pods + planned + "-- want.v2 --\nweb/app cpu.max 5\n":   0,
		pods + planned: 0,
		pods + "-- scenario.yaml --\nneeds: [core-sched]\n" + read: 0,
		pods + "-- scenario.yaml --\ntopology: host2\n" + read:     0,
	} {
		s, err := scenario.Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c := cell{protocol.FeatureBurst, "v2"}
		if got := shownBy([]scenario.Scenario{s}, []kernelLane{guest})[c]; len(got) != want {
			t.Errorf("%v is shown by %q", got, text)
		}
		s.Name = "z"
		if got := shownBy([]scenario.Scenario{s}, []kernelLane{guest})[c]; got != nil {
			t.Errorf("%v is shown, but no lane runs it", got)
		}
	}
}
