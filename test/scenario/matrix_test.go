// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"regexp"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
)

// cell is one feature on one cgroup version.
type cell struct {
	feature protocol.Feature
	version string
}

// elsewhere says, for the cells of the matrix that no scenario shows on a real kernel, why not and what does instead.
var elsewhere = map[cell]string{
	{protocol.FeatureMemory, "v1"}:  "mainline's cgroup v1 has none of its knobs; policy/container and policy/pod test vendor kernels",
	{protocol.FeatureBlkIO, "v1"}:   "the disk's name differs between machines: the lifecycle BlockIO reads blkio.throttle of this machine's disk",
	{protocol.FeatureBlkIO, "v2"}:   "the disk's name differs between machines: the lifecycle BlockIO reads io.max of this machine's disk",
	{protocol.FeatureNetwork, "v1"}: "it is the node's and not a container's: test/e2e's koordlet tests read tc",
	{protocol.FeatureNetwork, "v2"}: "it is the node's and not a container's: test/e2e's koordlet tests read tc",
}

// TestEveryFeatureIsShownOnBothVersions is the matrix of features and cgroup versions: for each cell a scenario that real lanes run
// plans the feature, and reads the file or attribute of that very setting back from the kernel; else the cell has a reason.
func TestEveryFeatureIsShownOnBothVersions(t *testing.T) {
	t.Parallel()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[cell][]string{}
	for i := range all {
		s := &all[i]
		if s.PaperOnly != "" {
			continue
		}
		for version, text := range s.WantPlan {
			for _, f := range readBack(s, version, text) {
				shown[cell{f, version}] = append(shown[cell{f, version}], s.Name)
			}
		}
	}
	for _, f := range protocol.Features() {
		for _, version := range []string{"v1", "v2"} {
			c := cell{f, version}
			switch why := elsewhere[c]; {
			case len(shown[c]) == 0 && why == "":
				t.Errorf("no scenario shows %s on cgroup %s", f, version)
			case len(shown[c]) > 0 && why != "":
				t.Errorf("%s on cgroup %s is shown by %v, yet is said not to be: %s", f, version, shown[c], why)
			default:
				t.Logf("%-18s %s: %s%s", f, version, strings.Join(shown[c], " "), why)
			}
		}
	}
}

// planLine is a setting of a wanted plan: level, target, knob, key, owner.
var planLine = regexp.MustCompile(`^(\w+) (\S+) ([a-z0-9_.]+)(?:\[([^\]]*)\])? = .* \(([a-z-]+): `)

// readBack lists the features whose settings the scenario reads back.
func readBack(s *Scenario, version, text string) (out []protocol.Feature) {
	for line := range strings.Lines(text) {
		m := planLine.FindStringSubmatch(line)
		if m == nil || strings.HasSuffix(strings.TrimSpace(line), " observe-only") {
			continue
		}
		f, ok := protocol.ParseFeature(m[5])
		if !ok {
			continue
		}
		for _, w := range s.Want[version] {
			if subjectOf(w) == m[1]+" "+m[2] && fileOf(m[3], m[4], version) == w.File {
				out = append(out, f)
				break
			}
		}
	}
	return out
}

// subjectOf is a wanted line's target as plans print it.
func subjectOf(w Want) string {
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

// A plan that is made and not read back shows nothing.
func TestTheMatrixReadsTheKernel(t *testing.T) {
	t.Parallel()
	const pods = "about\n-- pods.yaml --\nname: web\nuid: u1\ncontainers:\n- name: app\n"
	const planned = "-- want.plan.v2 --\ncontainer default/web/app cpu.burst = 5 (cpu-burst: why)\n"
	for text, want := range map[string]int{
		pods + planned + "-- want.v2 --\nweb/app cpu.max.burst 5\n": 1,
		pods + planned + "-- want.v2 --\nweb cpu.max.burst 5\n":     0,
		pods + planned + "-- want.v2 --\nweb/app cpu.max 5\n":       0,
		pods + planned: 0,
	} {
		s, err := Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := readBack(&s, "v2", s.WantPlan["v2"]); len(got) != want {
			t.Errorf("%v is read back by %q", got, text)
		}
	}
}
