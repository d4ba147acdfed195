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

// runs says whether a machine runs a guest test, or one of its subtests.
func (g *guestTests) runs(name, sub string) bool {
	return g.name.MatchString(name) && (sub == "" || g.sub.MatchString(sub))
}

// onV2 says whether a machine with cgroup v2 runs a guest test of one of these names, or a subtest of it.
func onV2(in []guestTests, sub string, names ...string) bool {
	return slices.ContainsFunc(in, func(g guestTests) bool {
		return !g.v1 && slices.ContainsFunc(names, func(name string) bool { return g.runs(name, sub) })
	})
}

// listed are the names in a table of a file of test/e2e, of which there are so many at least.
func listed(t *testing.T, file string, line *regexp.Regexp, least int) (names []string) {
	t.Helper()
	for _, m := range line.FindAllStringSubmatch(text(t, "../e2e/"+file), -1) {
		names = append(names, m[1])
	}
	if len(names) < least {
		t.Fatalf("only %d names found in %s: the search is wrong", len(names), file)
	}
	return names
}

// TestEveryLifecycleRuns: make test runs each lifecycle, and each life of the proxy, on the host, which may have cgroup v1; lab-vm-full runs each
// with v2, and make test some.
func TestEveryLifecycleRuns(t *testing.T) {
	t.Parallel()
	host := regexp.MustCompile(`-run '(\^TestHost[^']*)' \./test/e2e`).FindStringSubmatch(text(t, "../../Makefile"))
	if host == nil {
		t.Fatal("no lane of the host found: the search is wrong")
	}
	for _, name := range []string{"Lifecycle", "ProxySafe", "ProxyKilled", "ProxyKilledBetween", "ProxyBeside"} {
		if !regexp.MustCompile(host[1]).MatchString("TestHost" + name) {
			t.Errorf("make test does not run all of TestHost%s", name)
		}
	}
	short, full, some := vmTests(t, "TestVM("), vmTests(t, "TestFullVM("), 0
	for _, name := range listed(t, "lifecycle_test.go", cycle, 15) {
		if !onV2(full, name, "TestGuestLifecycle", "TestGuestSystemdLifecycle") {
			t.Errorf("lab-vm-full does not run lifecycle %s with cgroup v2", name)
		}
		if onV2(short, name, "TestGuestLifecycle", "TestGuestSystemdLifecycle") {
			some++
		}
	}
	if some < 4 {
		t.Errorf("make test runs %d lifecycles with cgroup v2", some)
	}
}

// kubeletStep is one of TestGuestKubelet.
var kubeletStep = regexp.MustCompile(`\{"(\w+)", n\.\w+\}`)

// TestEveryKubeletStepRuns: lab-vm-full has each step beside a real kubelet on cgroup v2.
func TestEveryKubeletStepRuns(t *testing.T) {
	t.Parallel()
	full := vmTests(t, "TestFullVM(")
	for _, step := range listed(t, "kubeletguest_test.go", kubeletStep, 15) {
		if !onV2(full, step, "TestGuestKubelet") {
			t.Errorf("lab-vm-full does not run step %s of TestGuestKubelet", step)
		}
	}
}

// TestEveryProxyLifeRunsOnV2: lab-vm-full has what the proxy does over time with cgroup v2, too.
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
	full, n := vmTests(t, "TestFullVM("), 0
	for _, list := range lives.FindAllStringSubmatch(src, -1) {
		for _, m := range life.FindAllStringSubmatch(list[2], -1) {
			n++
			if name := guestTest[list[1]]; name == "" || !onV2(full, m[1], name) {
				t.Errorf("no VM with cgroup v2 runs %s of %s in lab-vm-full", m[1], list[1])
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
