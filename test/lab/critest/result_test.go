// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const report = `[{"SpecReports": [
 {"LeafNodeType": "BeforeSuite", "State": "passed"},
 {"ContainerHierarchyTexts": ["B", "c"], "LeafNodeType": "It", "LeafNodeText": "works", "State": "passed", "RunTime": 12000000000},
 {"ContainerHierarchyTexts": ["A"], "LeafNodeType": "It", "LeafNodeText": "works", "State": "passed", "RunTime": 5},
 {"ContainerHierarchyTexts": ["A"], "LeafNodeType": "It", "LeafNodeText": "breaks", "State": "failed",
  "Failure": {"Message": "first\nsecond", "Location": {"FileName": "/src/a.go", "LineNumber": 7}}},
 {"ContainerHierarchyTexts": ["A"], "LeafNodeType": "It", "LeafNodeText": "hangs", "State": "timedout"},
 {"ContainerHierarchyTexts": ["A"], "LeafNodeType": "It", "LeafNodeText": "cannot", "State": "skipped", "Failure": {"Message": "no AppArmor"}},
 {"ContainerHierarchyTexts": ["A"], "LeafNodeType": "It", "LeafNodeText": "left out", "State": "skipped"}
]}]`

func TestParseReport(t *testing.T) {
	t.Parallel()
	r, err := parseReport([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Passed, []string{"A works", "B c works"}) {
		t.Errorf("passed %q", r.Passed)
	}
	if len(r.Failed) != 2 || r.Failed["A breaks"] != "failed: first (a.go:7)" || !strings.HasPrefix(r.Failed["A hangs"], "timedout") {
		t.Errorf("failed %q", r.Failed)
	}
	if len(r.Skipped) != 1 || r.Skipped["A cannot"] != "no AppArmor" {
		t.Errorf("skipped %q", r.Skipped)
	}
	if len(r.Slow) != 1 || r.Slow["B c works"] != 12*time.Second {
		t.Errorf("slow %v", r.Slow)
	}
}

func TestParseReportRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":      "critest version",
		"no suite":     "[]",
		"failed suite": `[{"SpecReports": [{"LeafNodeType": "BeforeSuite", "State": "failed", "Failure": {"Message": "no socket"}}]}]`,
	} {
		if _, err := parseReport([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCompareSets(t *testing.T) {
	t.Parallel()
	direct := Result{Passed: []string{"a", "b"}, Failed: map[string]string{"c": "why c"}}
	if err := CompareSets(direct, direct, 2); err != nil {
		t.Errorf("equal runs: %v", err)
	}
	if err := CompareSets(direct, direct, 3); err == nil {
		t.Error("2 passed specs are enough for 3")
	}
	proxied := Result{Passed: []string{"a", "c"}, Skipped: map[string]string{"b": "why b"}}
	err := CompareSets(direct, proxied, 2)
	if err == nil {
		t.Fatal("different runs are equal")
	}
	for _, want := range []string{"not through the proxy: b: skipped: why b", "not directly: c: why c"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := CompareSets(direct, Result{}, 0); err == nil {
		t.Error("a run without specs equals one with two")
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	got := Options{RuntimeEndpoint: "/r.sock", Focus: []string{"x"}, Skip: []string{"y"}}.arguments("/w/critest.test", "/w/report.json")
	at := slices.Index(got, "--")
	if at < 1 || got[at-1] != "/w/critest.test" || !slices.Equal(got[at+1:], []string{"-runtime-endpoint=unix:///r.sock", "-image-endpoint=unix:///r.sock"}) {
		t.Errorf("arguments %q", got)
	}
	for _, want := range []string{"--procs=4", "--focus=x", "--skip=y", "--skip=benchmark", "--json-report=report.json", "--output-dir=/w"} {
		if !slices.Contains(got[:at], want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
}
