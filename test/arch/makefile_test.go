// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	makeRule     = regexp.MustCompile(`^([a-z][a-z-]*):(?: ([^=#]*))?(?:##.*)?$`)
	makeVariable = regexp.MustCompile(`(?m)^([A-Z_]+) = (.*)$`)
	makeLane     = regexp.MustCompile(`^\t(?:\w+=\S+ )*\$\(LAB\) (.+)$`)
	makeWord     = regexp.MustCompile(`[a-z][a-z-]*`)
	laneFlag     = regexp.MustCompile(`-(run|skip) '([^']+)'`)
)

// lane is one go test of the Makefile.
type lane struct {
	target    string
	dirs      []string
	run, skip *regexp.Regexp // nil: all, none
}

func (l *lane) runs(dir, name string) bool {
	return slices.Contains(l.dirs, dir) && (l.run == nil || l.run.MatchString(name)) && (l.skip == nil || !l.skip.MatchString(name))
}

// makeLanes reads the lanes of the Makefile, and which targets each target leads to.
func makeLanes(t *testing.T) (lanes []lane, leads map[string][]string) {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(makefile), "\\\n", " ")
	for _, v := range makeVariable.FindAllStringSubmatch(text, -1) {
		if v[1] != "LAB" {
			text = strings.ReplaceAll(text, "$("+v[1]+")", v[2])
		}
	}
	leads = map[string][]string{}
	target := ""
	for line := range strings.SplitSeq(text, "\n") {
		if m := makeRule.FindStringSubmatch(line); m != nil {
			target = m[1]
			leads[target] = append(leads[target], strings.Fields(m[2])...)
			continue
		}
		// A recipe leads to the targets that it names: `$(MAKE) -j1 lab-host-beside`, `for lane in lint …; do $(MAKE) $$lane; done`.
		if strings.HasPrefix(line, "\t") && strings.Contains(line, "$(MAKE)") {
			leads[target] = append(leads[target], makeWord.FindAllString(line, -1)...)
		}
		if m := makeLane.FindStringSubmatch(line); m != nil {
			lanes = append(lanes, newLane(target, m[1]))
		}
	}
	return lanes, leads
}

// newLane reads the arguments of a lane's go test, which has $ twice, as make wants it. A pattern's part behind a slash is of subtests:
// such a -skip leaves the test itself.
func newLane(target, args string) lane {
	l := lane{target: target}
	for _, m := range laneFlag.FindAllStringSubmatch(args, -1) {
		name, _, sub := strings.Cut(strings.ReplaceAll(m[2], "$$", "$"), "/")
		switch {
		case m[1] == "run":
			l.run = regexp.MustCompile(name)
		case !sub:
			l.skip = regexp.MustCompile(name)
		}
	}
	for _, word := range strings.Fields(args) {
		if dir, ok := strings.CutPrefix(word, "./"); ok {
			l.dirs = append(l.dirs, dir)
		}
	}
	return l
}

// reached are a target and all that it leads to.
func reached(leads map[string][]string, target string) map[string]bool {
	out := map[string]bool{}
	for todo := []string{target}; len(todo) > 0; todo = todo[1:] {
		if !out[todo[0]] {
			out[todo[0]] = true
			todo = append(todo, leads[todo[0]]...)
		}
	}
	return out
}

// beyondTest are the lab tests that make test does not run, and why.
var beyondTest = map[string]string{
	"test/e2e.TestFullVM":                                     "lab-vm-full: TestVM runs each feature with cgroup v2; everything on each kernel takes hours",
	"test/e2e.TestGuestNeighbours":                            "lab-vm-full: needs a machine that is quiet for minutes, for it measures who waits for whom; TestClusterNodeMeasured has CPU on the host",
	"test/e2e.TestGuestCompat20":                              "lab-vm-full: TestCompatContainerd20 has them on the host, with the files of cgroup v1",
	"test/e2e.TestGuestCompat17":                              "lab-vm-full: TestCompatContainerd17 has them on the host, with the files of cgroup v1",
	"test/e2e.TestGuestCompat20FirstInstruction":              "lab-vm-full: TestCompatFirstInstruction20 has it on the host",
	"test/e2e.TestGuestCompat17FirstInstruction":              "lab-vm-full: TestCompatFirstInstruction17 has it on the host",
	"test/e2e.TestGuestSystemdDocker":                         "lab-vm-full: lab-proxy has dockerd on the host",
	"test/e2e.TestGuestSystemdProxyScenarios":                 "lab-vm-full: TestGuestProxyScenarios has one with cgroupfs",
	"test/e2e.TestGuestMemoryQoS":                             "lab-vm-full: koord-nri is killed and started for minutes; TestGuestScenarios/memory-annotation has the sums, engine/host.TestKubeletMemoryQoS who owns them",
	"test/e2e.TestGuestSystemdConformance":                    "lab-vm-full: TestGuestConformance has one with cgroupfs, and TestGuestSystemdKoordlet repairs what systemd has changed",
	"test/e2e.TestGuestKubelet":                               "lab-vm-full: an emulated API server takes minutes to start; TestClusterNode… have a real kubelet on the host",
	"test/e2e.TestGuestProxyBeside":                           "lab-vm-full: TestHostProxyBeside has it on the host",
	"test/e2e.TestGuestProxyKilled":                           "lab-vm-full: TestHostProxyKilled has it on the host",
	"test/e2e.TestGuestProxyKilledBetween":                    "lab-vm-full: TestHostProxyKilledBetween has it on the host",
	"test/e2e.TestGuestProxyBesideScenarios":                  "lab-vm-full: TestHostProxyBesideScenarios has them on the host",
	"test/e2e.TestDemoCluster":                                "lab-peers: needs kube-controller-manager built, and a machine that is quiet for minutes; TestClusterManager and TestClusterManagerMeasured have the closed loop",
	"test/e2e.TestCRIOScenarios":                              "lab-crio: there is no recipe for CRI-O here, who has one brings it",
	"test/e2e.TestCRIOProxyScenarios":                         "lab-crio, too",
	"test/e2e.TestCRIOLifecycle":                              "lab-crio, too",
	"test/e2e.TestCRIOProxyLives":                             "lab-crio, too",
	"test/lab/host.TestPeerEventsStall":                       "lab-peers: a trait of containerd that ADR 22 gives as a reason; no code of ours meets it",
	"test/lab/host.TestPeerEventsStolen":                      "lab-peers: another one",
	"test/lab/critest.TestUpstreamProxyHost":                  "lab-peers: upstream's proxy, which the benchmarks compare with; no code of ours in it",
	"test/lab/cluster.TestClusterUpstreamKoordlet":            "lab-peers: upstream's agent, which the benchmarks compare with; no code of ours in it",
	"test/e2e.TestGuestDemo":                                  "lab-vm-full: three minutes of an emulated machine; TestGuestScenarios compares what it shows, TestHostDemo runs it",
	"test/e2e.TestGuestSystemdDemo":                           "lab-vm-full, too",
	"test/lab/critest.TestCriDockerdHost":                     "lab-peers: cri-dockerd takes four minutes to compile; TestDockerHost… have dockerd with its own client, through the proxy too",
	"test/lab/critest.TestCriDockerdProxied":                  "lab-peers, too",
	"cri-proxy/internal/docker.TestDockerHostCriDockerd":      "lab-peers, too",
	"cri-proxy/internal/docker.TestDockerHostKoordCriDockerd": "lab-peers, too",
	"test/lab/cluster.TestClusterHooks":                       "lab-peers: upstream's agent takes minutes to compile; TestHostProxySafe/Hooks has a hook server of our own",
	"test/lab/vm.TestBareGuests":                              "lab-vm-full: TestVM boots these machines, and its tests need what this one finds in them",
	"test/lab/vm.TestSystemdGuest":                            "lab-vm-full, too",
	"test/lab/vm.TestCgroupV1Guest":                           "lab-vm-full, too",
	"test/lab/cluster.TestClusterComponents":                  "lab-peers: needs kube-controller-manager built, which collects the garbage that our owner references name",
}

// TestEveryLabTestHasALane: a test behind the tag lab that no lane of the Makefile and no v2 VM of make test names would be skipped
// silently, for ever; one that make test leaves out says why.
func TestEveryLabTestHasALane(t *testing.T) {
	t.Parallel()
	lanes, leads := makeLanes(t)
	ofTest := reached(leads, "test")
	guests, full := vmTests(t, "TestVM("), vmTests(t, "TestFullVM(")
	if len(lanes) < 15 || len(guests) < 6 || !ofTest["lab-vm"] || ofTest["lab-vm-full"] {
		t.Fatalf("%d lanes and %d VMs found, make test leads to %v: the patterns of this test are out of date", len(lanes), len(guests), ofTest)
	}
	runs := func(dir, name string, which func(*lane) bool) bool {
		return slices.ContainsFunc(lanes, func(l lane) bool { return which(&l) && l.runs(dir, name) })
	}
	n, left := 0, map[string]bool{}
	goFiles(t, func(path string, src []byte) {
		if !strings.HasSuffix(path, "_test.go") || !labTag.Match(src) {
			return
		}
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(src), -1) {
			n++
			name, key := m[1], dir+"."+m[1]
			if strings.HasPrefix(name, "TestGuest") && !onV2(full, "", name) {
				t.Errorf("%s: lab-vm-full does not run %s with cgroup v2", path, name)
			}
			if strings.HasPrefix(name, "TestGuest") && runs(dir, name, func(*lane) bool { return true }) {
				t.Errorf("%s: a lane runs %s on the host: it is for guests", path, name)
			}
			switch {
			case name == "TestMain":
			case strings.HasPrefix(name, "TestGuest") && onV2(guests, "", name):
			case strings.HasPrefix(name, "TestGuest") && beyondTest[key] == "":
				t.Errorf("%s: no VM of make test with cgroup v2 runs %s: give it one, or say in beyondTest why TestFullVM alone does", path, name)
			case strings.HasPrefix(name, "TestGuest"):
				left[key] = true
			case runs(dir, name, func(l *lane) bool { return ofTest[l.target] }):
			case !runs(dir, name, func(*lane) bool { return true }):
				t.Errorf("%s: no lane runs %s", path, name)
			case beyondTest[key] == "":
				t.Errorf("%s: no lane of make test runs %s: give it one, or say in beyondTest why not", path, name)
			default:
				left[key] = true
			}
		}
	})
	for key := range beyondTest {
		if !left[key] {
			t.Errorf("%s is in a lane of make test, or is not there: strike it off beyondTest", key)
		}
	}
	if n < 20 {
		t.Errorf("only %d lab tests found: the search is wrong", n)
	}
}
