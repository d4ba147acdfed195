// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package scenario reads the project's scenarios: pods, strategy and topology in, wanted plan and wanted kernel state
// out, as text archives that a reviewer can read.
//
// One file runs against the pure core, against a fake root, and against the real kernels of the host and the VM
// (test/e2e). Input: testdata/*.txtar. It may import every shared room and the lab; only tests import it.
//
// Sections of a file; the comment before the first one says what it shows:
//
//	scenario.yaml   Header: topology, versions, needs, memory: node capacity, config: lines of nri.yaml, devices
//	strategy.yaml   a NodeSLO, optional
//	dynamic.json    what the node agent would publish, optional
//	pods.json       the node agent's pod cache as daemon/handoff writes it: UID -> extended, containers; optional
//	pods.yaml       pods in order of creation, as test/lab/kubelet reads them, separated by ---
//	want.plan.v1    the plan, printed; rewritten by go test -update
//	want.v1         kernel state: "POD/CONTAINER FILE VALUE", "POD FILE VALUE" ("/" stands for kubepods) or
//	                "@group NAME RESOURCE DOMAINS" (a resctrl group's schemata); want.v2 alike
//
// In every section DISK stands for the name of the machine's disk ("vda") and MAJ:MIN for its number.
package scenario

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// groupSubject begins a wanted line about a resctrl group. The others are needs of a scenario.
const (
	groupSubject = "@group"
	NeedResctrl  = "resctrl"
	NeedCookies  = "core-sched"
)

//go:embed testdata/*.txtar
var files embed.FS

// Scenario is one file.
type Scenario struct {
	Name  string
	About string
	Header
	Strategy []byte
	Dynamic  node.Dynamic
	// Cache is the node agent's pod cache by UID, nil without one.
	Cache map[string]node.PodSpec
	Pods  []kubelet.Pod
	// WantPlan and Want are by version, "v1" or "v2".
	WantPlan map[string]string
	Want     map[string][]Want

	archive *txtar.Archive
}

// Header is scenario.yaml.
type Header struct {
	// Topology names the machine that the CPU numbers fit: "any" (they do not matter), "host2" (two CPUs, one node) or
	// "vm8" (eight, two nodes of four, SMT).
	Topology string   `json:"topology"`
	Versions []string `json:"versions"`
	// Needs are what a real machine must have: "resctrl" (mounted, with L3 masks), "core-sched" (cookies).
	Needs []string `json:"needs,omitempty"`
	// Memory is the node's capacity on paper.
	Memory kubelet.Quantity `json:"memory"`
	// Config is a piece of nri.yaml.
	Config json.RawMessage `json:"config,omitempty"`
	// Devices are the device nodes of the machine, made for the test: nodes below a directory that stands for /dev.
	Devices []Device `json:"devices,omitempty"`
}

// Device is a character device of the scenario's machine, as kernel/sys would find it.
type Device struct {
	// Type is "gpu" or "rdma". Index is Koordinator's minor, -1 with Control. Path is in /dev.
	Type    string `json:"type"`
	Index   int    `json:"index"`
	UUID    string `json:"uuid,omitempty"`
	BusID   string `json:"busID,omitempty"`
	Path    string `json:"path"`
	Major   uint32 `json:"major"`
	Minor   uint32 `json:"minor"`
	Control bool   `json:"control,omitempty"`
}

// Want is one line of wanted kernel state.
type Want struct {
	Pod, Container string
	// Group is a resctrl group; File is then a line of its schemata ("L3").
	Group string
	// File is a cgroup file ("memory.high", on v1 without its controller) or an attribute of the init process: "@oom",
	// "@sched", "@resctrl", "@cookie" (of whom: see Holder), "@env NAME", "@device PATH" ("none" without it), "@access MAJOR:MINOR"
	// ("allowed" or "refused": what the container's processes get that open such a character device).
	File, Value string
}

// String is the line.
func (w Want) String() string {
	subject := w.Pod
	if w.Group != "" {
		subject = groupSubject + " " + w.Group
	}
	if w.Container != "" {
		subject += "/" + w.Container
	}
	return subject + " " + w.File + " " + w.Value
}

// All reads every scenario, by name.
func All() ([]Scenario, error) {
	names, err := fs.Glob(files, "testdata/*.txtar")
	if err != nil {
		return nil, fmt.Errorf("list scenarios: %w", err)
	}
	var out []Scenario
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read scenario: %w", err)
		}
		s, err := Parse(strings.TrimSuffix(path.Base(name), ".txtar"), data)
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", name, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Parse reads one archive, for the machine on paper. Unknown sections and keys are errors: a misspelt one would test nothing.
func Parse(name string, data []byte) (Scenario, error) { return parse(name, data, paperDisk()) }

func parse(name string, data []byte, disk Disk) (Scenario, error) {
	s := Scenario{Name: name, WantPlan: map[string]string{}, Want: map[string][]Want{}, archive: txtar.Parse(data)}
	s.About = strings.TrimSpace(string(s.archive.Comment))
	for _, f := range s.archive.Files {
		if err := s.section(f.Name, []byte(disk.fill(string(f.Data)))); err != nil {
			return Scenario{}, fmt.Errorf("section %s: %w", f.Name, err)
		}
	}
	return s, s.check()
}

func (s *Scenario) section(name string, data []byte) error {
	if v, ok := strings.CutPrefix(name, "want.plan."); ok {
		s.WantPlan[v] = string(data)
		return nil
	}
	if v, ok := strings.CutPrefix(name, "want."); ok {
		wants, err := parseWants(string(data))
		s.Want[v] = wants
		return err
	}
	switch name {
	case "scenario.yaml":
		return yaml.UnmarshalStrict(data, &s.Header)
	case "strategy.yaml":
		s.Strategy = data
		return nil
	case "dynamic.json":
		s.Dynamic.Known = true
		return json.Unmarshal(data, &s.Dynamic)
	case "pods.json":
		cache, err := parseCache(data)
		s.Cache = cache
		return err
	case "pods.yaml":
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
			p, err := kubelet.ParsePod(doc)
			if err != nil {
				return err
			}
			s.Pods = append(s.Pods, p)
		}
		return nil
	}
	return fmt.Errorf("no such section")
}

func parseWants(text string) ([]Want, error) {
	var out []Want
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " # ")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		subject, rest, _ := strings.Cut(line, " ")
		file, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if file == "@env" || file == "@device" || file == "@access" {
			var name string
			name, value, _ = strings.Cut(strings.TrimSpace(value), " ")
			file += " " + name
		}
		if file == "" {
			return nil, fmt.Errorf("line %q: want SUBJECT FILE VALUE", line)
		}
		w := Want{File: file, Value: strings.TrimSpace(value)}
		if subject == groupSubject {
			w.Group = w.File
			w.File, w.Value, _ = strings.Cut(w.Value, " ")
			out = append(out, w)
			continue
		}
		w.Pod, w.Container, _ = strings.Cut(subject, "/")
		out = append(out, w)
	}
	return out, nil
}

func (s *Scenario) check() error {
	s.Topology = cmp.Or(s.Topology, "any")
	if len(s.Versions) == 0 {
		s.Versions = []string{"v1", "v2"}
	}
	s.Memory = cmp.Or(s.Memory, "16Gi")
	if !slices.Contains([]string{"any", "host2", "vm8"}, s.Topology) {
		return fmt.Errorf("topology %q", s.Topology)
	}
	for _, need := range s.Needs {
		if need != NeedResctrl && need != NeedCookies {
			return fmt.Errorf("need %q", need)
		}
	}
	if s.About == "" || len(s.Pods) == 0 {
		return fmt.Errorf("a scenario needs a comment and pods")
	}
	for v, wants := range s.Want {
		if !slices.Contains(s.Versions, strings.TrimSuffix(v, Systemd)) {
			return fmt.Errorf("want.%s, but versions are %v", v, s.Versions)
		}
		for _, w := range wants {
			if w.Pod == "" {
				continue
			}
			i := slices.IndexFunc(s.Pods, func(p kubelet.Pod) bool { return p.Name == w.Pod })
			if i < 0 || w.Container != "" && !slices.ContainsFunc(s.Pods[i].Containers, func(c kubelet.Container) bool { return c.Name == w.Container }) {
				return fmt.Errorf("want.%s: %q is no pod or container of the scenario", v, w)
			}
		}
	}
	return nil
}

// Systemd is the suffix of a want section that holds where the cgroups are systemd units: "want.v2-systemd". Its lines
// replace those of the plain section with the same subject and file.
const Systemd = "-systemd"

// Wants are the lines for a version, with systemd's replacements when the cgroups are its units.
func (s *Scenario) Wants(version string, systemd bool) []Want {
	out := slices.Clone(s.Want[version])
	if !systemd {
		return out
	}
	for _, w := range s.Want[version+Systemd] {
		for i := range out {
			if out[i].Pod == w.Pod && out[i].Container == w.Container && out[i].File == w.File {
				out[i].Value = w.Value
			}
		}
	}
	return out
}

// Fits reports whether the scenario can run on a real machine with this version and topology that has these needs, and
// why not.
func (s *Scenario) Fits(version, topology string, has ...string) (string, bool) {
	for _, need := range s.Needs {
		if !slices.Contains(has, need) {
			return "needs " + need, false
		}
	}
	switch {
	case !slices.Contains(s.Versions, version):
		return "for cgroup " + strings.Join(s.Versions, ", "), false
	case s.Topology != "any" && s.Topology != topology:
		return "for topology " + s.Topology, false
	}
	return "", true
}

// HostVersion and HostTopology are what the matrix of test/arch has the lab's host for.
const HostVersion, HostTopology = "v1", "host2"

// Lost names the scenarios that the lab's host shows by that matrix and a host with this version and topology does not.
func Lost(all []Scenario, version, topology string) (names []string) {
	for i := range all {
		_, counted := all[i].Fits(HostVersion, HostTopology)
		if _, fits := all[i].Fits(HostVersion, topology); counted && (version != HostVersion || !fits) {
			names = append(names, all[i].Name)
		}
	}
	return names
}

// SetPlan replaces the wanted plan by that of the machine on paper, for -update.
func (s *Scenario) SetPlan(version, text string) {
	name := "want.plan." + version
	text = paperDisk().blank(text)
	for i := range s.archive.Files {
		if s.archive.Files[i].Name == name {
			s.archive.Files[i].Data = []byte(text)
			return
		}
	}
	s.archive.Files = append(s.archive.Files, txtar.File{Name: name, Data: []byte(text)})
}

// Format renders the archive.
func (s *Scenario) Format() []byte { return txtar.Format(s.archive) }

// Manifest is the strategy where it is a whole NodeSLO, as a user has it in a file; nil where it is a bare spec.
func (s *Scenario) Manifest() []byte {
	if !bytes.Contains(s.Strategy, []byte("kind: NodeSLO")) {
		return nil
	}
	return s.Strategy
}

// WithoutStrategy is the scenario for somebody who gives its strategy in another way.
func (s *Scenario) WithoutStrategy() *Scenario {
	out := *s
	out.Strategy = nil
	return &out
}

// NRIConfig is the configuration of koord-nri for the scenario: its config lines over the given ones, then the strategy
// as a second document.
func (s *Scenario) NRIConfig(base map[string]any) ([]byte, error) {
	merged := map[string]any{"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig"}
	if len(s.Config) > 0 {
		if err := json.Unmarshal(s.Config, &merged); err != nil {
			return nil, fmt.Errorf("config of %s: %w", s.Name, err)
		}
	}
	for k, v := range base {
		merged[k] = v
	}
	manifest := s.Manifest()
	if len(s.Strategy) > 0 && manifest == nil {
		var spec any
		if err := yaml.Unmarshal(s.Strategy, &spec); err != nil {
			return nil, fmt.Errorf("strategy of %s: %w", s.Name, err)
		}
		merged["strategy"] = spec
	}
	out, err := yaml.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("config of %s: %w", s.Name, err)
	}
	if manifest != nil {
		out = append(append(out, "---\n"...), manifest...)
	}
	return out, nil
}
