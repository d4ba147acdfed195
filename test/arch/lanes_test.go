// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"go/build/constraint"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	labTag   = regexp.MustCompile(`(?m)^//go:build .*\blab\b`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	vmMatch  = regexp.MustCompile(`"([^"]+)", vm\.Options\{([^}]*)\}, (.+)\},`)
	constant = regexp.MustCompile(`(?m)^(?:const)?\s*(\w+)\s*= "(/[^"]*)"$`)
	cycle    = regexp.MustCompile(`(?m)^\t\{"(\w+)", lifecycle\w+\},$`)
	lives    = regexp.MustCompile(`(?ms)^var (\w+) = \[\]proxyLife\{\n(.*?)^\}`)
	life     = regexp.MustCompile(`(?m)^\t\{"(\w+)", \w+\},$`)
	livesOf  = regexp.MustCompile(`func (TestGuest\w+)\(t \*testing\.T\) \{\s*proxyLives\(t, .*, (\w+)\)\s*\}`)
)

// guestTests is what one VM of test/e2e runs: names of tests and, when not all, of their subtests.
type guestTests struct {
	machine   string
	v1        bool
	name, sub *regexp.Regexp
}

// vmTests reads the machines of a function of test/e2e's VM lane. A machine's text is "^Test$/^(a|b)$|^Other$", with
// constants for the parts after the slash.
func vmTests(t *testing.T, function string) (out []guestTests) {
	t.Helper()
	src, err := os.ReadFile("../e2e/vm_test.go")
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	for _, m := range constant.FindAllStringSubmatch(string(src), -1) {
		constants[m[1]] = m[2]
	}
	_, body, found := strings.Cut(string(src), "func "+function)
	body, _, _ = strings.Cut(body, "\n}\n")
	if !found {
		t.Fatalf("no function %s", function)
	}
	for _, m := range vmMatch.FindAllStringSubmatch(body, -1) {
		text := ""
		for part := range strings.SplitSeq(m[3], " + ") {
			if value, ok := constants[part]; ok {
				text += value
			} else {
				text += strings.Trim(part, `"`)
			}
		}
		for one := range strings.SplitSeq(strings.ReplaceAll(text, "|^Test", "\n^Test"), "\n") {
			name, sub, _ := strings.Cut(one, "/")
			out = append(out, guestTests{m[1], strings.Contains(m[2], "CgroupV1: true"), regexp.MustCompile(name), regexp.MustCompile(sub)})
		}
	}
	return out
}

// kernelless are lifecycles and lives of the proxy that show what is between the runtime, or a client, and us: messages that are split or
// hostile, a connection that comes late or twice, secrets. The kernel has no part in that, and an emulated one takes minutes for it, so make test has
// them on the host alone; lab-vm-full has them on each kernel as well.
var kernelless = []string{"WhileSynchronizing", "Split", "HostileAnnotations", "LateSocket", "SecondInstance", "Secrets", "Hooks", "Transparent"}

// TestKernellessRunElsewhere: what make test leaves to the host is there, and on cgroup v2 in the long lane.
func TestKernellessRunElsewhere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	host := regexp.MustCompile(`-run '(\^TestHost[^']*)' \./test/e2e`).FindSubmatch(makefile)
	if host == nil {
		t.Fatal("no lane of the host found: the search is wrong")
	}
	full := vmTests(t, "TestFullVM(")
	for _, name := range []string{"Lifecycle", "ProxySafe"} {
		if !regexp.MustCompile(string(host[1])).MatchString("TestHost" + name) {
			t.Errorf("make test does not run all of TestHost%s", name)
		}
		for _, one := range kernelless {
			if !slices.ContainsFunc(full, func(g guestTests) bool {
				return !g.v1 && g.name.MatchString("TestGuest"+name) && g.sub.MatchString(one)
			}) {
				t.Errorf("lab-vm-full does not run %s of TestGuest%s", one, name)
			}
		}
	}
}

// TestEveryLifecycleRunsOnV2: make test runs each lifecycle in which the kernel has a part in a VM with cgroup v2 and not only on the
// host, which may have v1.
func TestEveryLifecycleRunsOnV2(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../e2e/lifecycle_test.go")
	if err != nil {
		t.Fatal(err)
	}
	all := cycle.FindAllStringSubmatch(string(src), -1)
	if len(all) < 15 {
		t.Fatalf("only %d lifecycles found: the search is wrong", len(all))
	}
	guests := vmTests(t, "TestVM(")
	for _, m := range all {
		if !slices.Contains(kernelless, m[1]) && !slices.ContainsFunc(guests, func(g guestTests) bool {
			return !g.v1 && (g.name.MatchString("TestGuestLifecycle") || g.name.MatchString("TestGuestSystemdLifecycle")) && g.sub.MatchString(m[1])
		}) {
			t.Errorf("no VM with cgroup v2 runs lifecycle %s in make test", m[1])
		}
	}
}

// kubeletStep is one of TestGuestKubelet.
var kubeletStep = regexp.MustCompile(`\{"(\w+)", n\.\w+\}`)

// TestEveryKubeletStepRuns: make test has each step beside a real kubelet on cgroup v2 but one, which is long; the long lane has that one, too.
func TestEveryKubeletStepRuns(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../e2e/kubeletguest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	all := kubeletStep.FindAllStringSubmatch(string(src), -1)
	if len(all) < 15 {
		t.Fatalf("only %d steps found: the search is wrong", len(all))
	}
	runs := func(in []guestTests, step string) bool {
		return slices.ContainsFunc(in, func(g guestTests) bool {
			return !g.v1 && g.name.MatchString("TestGuestKubelet") && g.sub.MatchString(step)
		})
	}
	guests, full := vmTests(t, "TestVM("), vmTests(t, "TestFullVM(")
	for _, m := range all {
		step := m[1]
		if long := step == "TieredReservation"; runs(guests, step) == long {
			t.Errorf("make test runs step %s of TestGuestKubelet: %v, want %v", step, long, !long)
		}
		if !runs(full, step) {
			t.Errorf("lab-vm-full does not run step %s of TestGuestKubelet", step)
		}
	}
}

// TestEveryProxyLifeRunsOnV2 is the same of the proxy's behaviour over time.
func TestEveryProxyLifeRunsOnV2(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../e2e/proxy*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	src := ""
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		src += string(text)
	}
	guestTest := map[string]string{}
	for _, m := range livesOf.FindAllStringSubmatch(src, -1) {
		guestTest[m[2]] = m[1]
	}
	guests, n := vmTests(t, "TestVM("), 0
	for _, list := range lives.FindAllStringSubmatch(src, -1) {
		for _, m := range life.FindAllStringSubmatch(list[2], -1) {
			n++
			if name := guestTest[list[1]]; name == "" || !slices.Contains(kernelless, m[1]) && !slices.ContainsFunc(guests, func(g guestTests) bool {
				return !g.v1 && g.name.MatchString(name) && g.sub.MatchString(m[1])
			}) {
				t.Errorf("no VM with cgroup v2 runs %s of %s in make test", m[1], list[1])
			}
		}
	}
	if n < 16 {
		t.Fatalf("only %d of the proxy's lives found: the search is wrong", n)
	}
	if strings.Count(src, "proxyLives(t, ") != 2*len(guestTest) {
		t.Errorf("%d lists of lives have a test for VMs: each call for the host needs one beside it", len(guestTest))
	}
}

// TestLintSeesEveryFile: lint looks at the tree once, with the tag lab. A file that is there only without it would escape. Files for
// other systems than Linux are compiled by no lane: they only say that this one is not it.
func TestLintSeesEveryFile(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"go vet", "$(TOOL) staticcheck"} {
		if !strings.Contains(string(makefile), tool+" -tags lab ./...\n") {
			t.Errorf("lint does not run %q with the tag lab over everything", tool)
		}
	}
	n := 0
	goFiles(t, func(path string, src []byte) {
		for line := range strings.Lines(string(src)) {
			if strings.HasPrefix(line, "package ") {
				return
			}
			if !constraint.IsGoBuild(line) {
				continue
			}
			n++
			expr, err := constraint.Parse(line)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			// A system or option decides for itself, so each other tag is tried as set and as not set.
			for _, other := range []bool{true, false} {
				with := expr.Eval(func(tag string) bool { return tag == "lab" || other })
				without := expr.Eval(func(tag string) bool { return tag != "lab" && other })
				if without && !with {
					t.Errorf("%s: %s: it is there only without the tag lab, where lint does not look", path, strings.TrimSpace(line))
					break
				}
			}
		}
	})
	if n < 20 {
		t.Fatalf("only %d build constraints found: the search is wrong", n)
	}
}
