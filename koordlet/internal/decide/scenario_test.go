// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"bytes"
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/strategy"
)

var update = flag.Bool("update", false, "rewrite the traces of the scenarios")

//go:embed testdata/*.txtar
var scenarioFiles embed.FS

// scenario is one file of testdata: pods on a node of paper, what they would use as time goes by, and what shall come of it. Time is an
// argument, so an hour of it takes as long as its steps. The comment before the first section says what it shows. Sections:
//
//	node.yaml            paperNode
//	strategy.yaml        a NodeSLO; strategy-NAME.yaml another one, which "60s strategy NAME" of the load puts in its place
//	pods.yaml            pods as Kubernetes has them, separated by ---; uid and status are filled in
//	load.txt             what they would use, see parseLoad
//	want.txt             what must come of it, see parseWants: written by hand
//	trace.txt            each change of what is in force, and why; rewritten by go test -update
type scenario struct {
	name       string
	archive    *txtar.Archive
	node       paperNode
	strategies map[string]strategy.Spec // complete; "" is the first
	pods       []map[string]any
	load       load
	wants      []want
	trace      string
}

// paperNode is node.yaml.
type paperNode struct {
	// CPUs of the node, spread over its NUMA nodes, with so many threads a core.
	CPUs      int `json:"cpus"`
	NUMANodes int `json:"numaNodes"`
	Threads   int `json:"threads"`
	// Memory is its capacity. Allocatable and Annotations are of its Node object.
	Memory      string            `json:"memory"`
	Allocatable map[string]string `json:"allocatable,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// For is how long it is looked at.
	For string `json:"for"`
	// Tune, NoReclaim and NoPressure are decide.Facts'.
	Tune       bool   `json:"tune,omitempty"`
	NoReclaim  string `json:"noReclaim,omitempty"`
	NoPressure bool   `json:"noPressure,omitempty"`
}

// parseScenario reads one file. What it does not know is an error: a misspelt word would test nothing.
func parseScenario(name string, data []byte) (*scenario, error) {
	s := &scenario{name: name, archive: txtar.Parse(data), strategies: map[string]strategy.Spec{}}
	if len(bytes.TrimSpace(s.archive.Comment)) == 0 {
		return nil, fmt.Errorf("scenario %s does not say what it shows", name)
	}
	for _, f := range s.archive.Files {
		if err := s.section(f.Name, f.Data); err != nil {
			return nil, fmt.Errorf("scenario %s: section %s: %w", name, f.Name, err)
		}
	}
	if len(s.strategies) == 0 || len(s.pods) == 0 || len(s.wants) == 0 {
		return nil, fmt.Errorf("scenario %s has no strategy, no pod or nothing that it wants", name)
	}
	return s, nil
}

func (s *scenario) section(name string, data []byte) (err error) {
	switch name {
	case "node.yaml":
		return yaml.UnmarshalStrict(data, &s.node)
	case "pods.yaml":
		for _, text := range strings.Split(string(data), "\n---\n") {
			var pod map[string]any
			if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
				return err
			}
			s.pods = append(s.pods, pod)
		}
	case "load.txt":
		s.load, err = parseLoad(string(data))
	case "want.txt":
		s.wants, err = parseWants(string(data))
	case "trace.txt":
		s.trace = string(data)
	default:
		which, begins := strings.CutPrefix(strings.TrimSuffix(name, ".yaml"), "strategy")
		if !begins || !strings.HasSuffix(name, ".yaml") {
			return fmt.Errorf("no section of a scenario has this name")
		}
		spec, err := strategy.Parse(data)
		if err != nil {
			return err
		}
		s.strategies[strings.TrimPrefix(which, "-")] = strategy.Effective(spec)
	}
	return err
}

// seconds reads whole seconds ("90s", "1m30s").
func seconds(text string) (int, error) {
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || d%time.Second != 0) {
		err = fmt.Errorf("%q is not in whole seconds", text)
	}
	return int(d / time.Second), err
}

// run plays the scenario and returns the trace, and the wants that did not come true.
func (s *scenario) run(t testing.TB) (trace string, failed []string) {
	t.Helper()
	limit, err := seconds(s.node.For)
	if err != nil {
		t.Fatalf("node.yaml: for: %v", err)
	}
	p := newPaper(t, s)
	told := map[int]bool{}
	for second := range limit + 1 {
		p.tick(t, second)
		for i := range s.wants {
			w := &s.wants[i]
			if told[i] || second < w.from || second > w.to {
				continue
			}
			w.looked = true
			if is := w.check(p); is != "" {
				told[i] = true
				failed = append(failed, fmt.Sprintf("%s: after %ds %s", w.line, second, is))
			}
		}
	}
	for i := range s.wants {
		if !s.wants[i].looked {
			failed = append(failed, s.wants[i].line+": nobody looked, the scenario ends before")
		}
	}
	return p.trace.String(), failed
}

// TestScenarios plays every scenario: what it wants comes true, and the loops decide what they did when the trace was read last.
func TestScenarios(t *testing.T) {
	names, err := fs.Glob(scenarioFiles, "testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d scenarios, %v", len(names), err)
	}
	for _, file := range names {
		data, err := scenarioFiles.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := parseScenario(name, data)
			if err != nil {
				t.Fatal(err)
			}
			trace, failed := s.run(t)
			for _, f := range failed {
				t.Error(f)
			}
			if *update {
				s.rewrite(t, file, trace)
				return
			}
			if d := cmp.Diff(s.trace, trace); d != "" {
				t.Errorf("trace (-want +got; go test -update rewrites it):\n%s", d)
			}
		})
	}
}

// rewrite puts the trace into the file.
func (s *scenario) rewrite(t *testing.T, file, trace string) {
	t.Helper()
	var kept []txtar.File
	for _, f := range s.archive.Files {
		if f.Name != "trace.txt" {
			kept = append(kept, f)
		}
	}
	s.archive.Files = append(kept, txtar.File{Name: "trace.txt", Data: []byte(trace)})
	if err := os.WriteFile(file, txtar.Format(s.archive), 0o600); err != nil {
		t.Fatal(err)
	}
}

const small = `A node of four CPUs, for the scenarios' own test.
-- node.yaml --
{cpus: 4, numaNodes: 1, threads: 1, memory: 8Gi, for: 20s}
-- strategy.yaml --
resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}
-- pods.yaml --
metadata: {name: job, labels: {koordinator.sh/qosClass: BE}}
spec: {containers: [{name: work}]}
-- load.txt --
0s job cpu 4
-- want.txt --
`

// Wants that do not come true are told with what is instead, and so are those that nobody looks at and those about nobody.
func TestScenariosFail(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"5s be cpu <= 2.6":       "",
		"5s be cpu <= 2":         "5s be cpu <= 2: after 5s it is 2.6",
		"2s..20s job = runs":     "",
		"2s..20s job = gone":     "2s..20s job = gone: after 2s it is runs",
		"30s be cpu >= 0":        "30s be cpu >= 0: nobody looked, the scenario ends before",
		"5s web cpu >= 0":        "5s web cpu >= 0: after 5s nobody tells",
		"5s job/work quota = 1":  "5s job/work quota = 1: after 5s it is -1",
		"5s be set within 0-3":   "5s be set within 0-3: after 5s it is empty",
		"5s node memory <= 1Mi":  "",
		"5s job/work high = 1Gi": "5s job/work high = 1Gi: after 5s it is -1",
	} {
		s, err := parseScenario("small", []byte(small+line+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, failed := s.run(t)
		if got := strings.Join(failed, "; "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for name, more := range map[string]string{
		"a section": "0s job = runs\n-- wants.txt --\n", "an operator": "0s job cpu == 1\n", "an instant": "1ms job = runs\n",
		"a range": "5s..2s job = runs\n", "a need": "0s job = runs\n-- load.txt --\n0s job cpus 1\n", "no want": "",
		"half a ramp": "0s job = runs\n-- load.txt --\n0s..9s job cpu 1\n",
	} {
		if _, err := parseScenario(name, []byte(small+more)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
