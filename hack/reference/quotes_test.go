// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// madeOf are quotations of docs/user/troubleshoot.md that a program puts together, with the texts of the code that they are made of.
var madeOf = map[string][]string{
	"set by kubectl-edit, not by the cluster's strategy":                   {": set by %s, not by the cluster's strategy"},
	"[last drift TIME: 200000 by runtime]":                                 {" [last drift %s: %s by %s]", "runtime"},
	"limits.devises: unknown key":                                          {"unknown key"},
	"cpuBurstStrategy.cpuBurstPercent: out of range: 50000, want 1..10000": {"out of range"},
	"two spellings of one field differ; keep one":                          {"two spellings of one field differ", "%s and %s: %v; keep one"},
	`what=strategy reason="the last good one holds: …"`:                    {"strategy", "the last good one holds: %w"},
	`what=configuration reason="the last good one holds, and a start would be refused: …"`: {
		"configuration", "the last good one holds, and a start would be refused: %w",
	},
	`what=configuration reason="collect.interval, pprof: changed in the file, and taken in by a restart only"`: {
		"collect", "interval", "pprof", "%s: changed in the file, and taken in by a restart only",
	},
	`what=relist reason="containers that came while the runtime listed its own cannot be asked for: …"`: {
		"relist", "containers that came while the runtime listed its own cannot be asked for: ",
	},
	"lock …/nri.lock: held by process N; stop it first":     {"lock %s: held by process %d; stop it first", ".lock"},
	"memory-qos unsupported: cgroup v1 has no memory.min …": {"memory-qos", "unsupported", "cgroup v1 has no memory.min, "},
	"what=handoff":       {"handoff"},
	`what="hook server"`: {"hook server"},
	`reason="changes are noticed within 1s only, the kernel does not tell of them …: WHY"`: {
		"changes are noticed within %s only, the kernel does not tell of them (fs.inotify.max_user_instances, max_user_watches): %v",
	},
	"window … degraded: no room for more series":             {"window", "degraded", "no room for more series: "},
	"pressure-triggers … degraded: … pods wait for the tick": {"pressure-triggers", "degraded", "%d pods wait for the tick: "},
	"recreate … no original was recorded":                    {"recreate", "no original was recorded"},
	"host.kubeletMemoryQoS: auto":                            {"host", "kubeletMemoryQoS", "auto"},
	`kubeletMemoryQoS: "yes"`:                                {"kubeletMemoryQoS", "yes"},
	"/run/koord-rt/ledger/nri.jsonl":                         {"/run/koord-rt", "ledger", "nri", ".jsonl"},
	"cri.jsonl":                                              {"cri", ".jsonl"},
}

// foreign are words of other programs: of kubectl, kubelet, the kernel, runtimes and their tools.
var foreign = []string{
	"crictl inspect", "crictl rm", "crictl rmp", "info.runtimeSpec", "status.resources", "requestPluginSync", "BlockPluginSync", "describe nodes", "describe", "less",
	"too many open files", "no space left on device", "no such file or directory", "fs.inotify.max_user_instances", "max_user_watches", "metadata.generation",
	"forbidden", "enable_cdi", "plugin_path", "plugin_config_path", "namespace/pod/container", "koordctl",
}

// texts are what programs can say and read: every string of their code, and every key of what they read and write.
func texts(t *testing.T) (all map[string]bool, keys map[string]bool) {
	t.Helper()
	all, keys = map[string]bool{}, map[string]bool{}
	key := regexp.MustCompile(`json:"([^",]+)`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path) // both are the same tree's
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "test" || rel == "hack" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var s scanner.Scanner
		s.Init(token.NewFileSet().AddFile(path, -1, len(src)), src, nil, 0)
		for {
			_, tok, text := s.Scan()
			if tok == token.EOF {
				return nil
			}
			if tok != token.STRING {
				continue
			}
			text, err := strconv.Unquote(text)
			if err != nil {
				return err
			}
			all[text] = true
			for _, m := range key.FindAllStringSubmatch(text, -1) {
				keys[m[1]] = true
			}
		}
	})
	if err != nil || len(all) < 5000 || len(keys) < 200 {
		t.Fatalf("%d texts, %d keys, %v", len(all), len(keys), err)
	}
	return all, keys
}

// columns are what kubectl shows of our kinds: HARD-CPU, and HARD for all that begin so.
func columns(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "packaging", "crds", "*.yaml"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	column := regexp.MustCompile(`(?m)^ +name: ([A-Z][\w-]*)$`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range column.FindAllStringSubmatch(string(text), -1) {
			name := strings.ToUpper(m[1])
			first, _, _ := strings.Cut(name, "-")
			out = append(out, name, first)
		}
	}
	return out
}

// quotations are the page's code, but for commands and blocks.
func quotations(text string) []string {
	code := regexp.MustCompile("`([^`]+)`")
	found := map[string]bool{}
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced || strings.HasPrefix(line, "    ") {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(m[1], "koordctl ") && !strings.HasPrefix(m[1], "kubectl ") {
				found[m[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Whatever docs/user/troubleshoot.md quotes is said by a program of ours as it stands there, is a key or a metric, is made of texts that are, or
// is somebody else's: who searches for what he reads finds it there. Commands are looked at by koordctl and by the lab's kubectl.
func TestTroubleshootingQuotesWhatIsSaid(t *testing.T) {
	t.Parallel()
	pages := manuals(t)
	page, metrics := pages["docs/user/troubleshoot.md"], pages["docs/reference/metrics.md"]
	all, keys := texts(t)
	for _, c := range columns(t) {
		all[c] = true
	}
	within := func(text string) bool {
		for has := range all {
			if strings.Contains(has, text) {
				return true
			}
		}
		return false
	}
	said := func(text string) bool {
		switch name, _, _ := strings.Cut(strings.TrimSuffix(text, " == 0"), "{"); {
		case strings.HasPrefix(name, "koord_"):
			return strings.Contains(metrics, "| `"+name+"` |")
		case strings.Contains(text, " "):
			return within(text)
		}
		if all[text] || all[strings.TrimLeft(text, "-")] {
			return true
		}
		for part := range strings.SplitSeq(text, ".") {
			if !keys[part] {
				return false
			}
		}
		return true
	}
	quoted := quotations(page)
	for _, q := range quoted {
		parts, made := madeOf[q]
		switch {
		case made:
			for _, p := range parts {
				if !all[p] && !keys[p] && !(len(p) > 12 && within(p)) {
					t.Errorf("%s: nobody says %q", q, p)
				}
			}
		case slices.Contains(foreign, q):
		case !said(q):
			t.Errorf("%s: nobody says so; if a program puts it together, say of what in madeOf", q)
		}
	}
	for q := range madeOf {
		if !slices.Contains(quoted, q) {
			t.Errorf("%s is not on the page", q)
		}
	}
	for _, q := range foreign {
		if !slices.Contains(quoted, q) {
			t.Errorf("%s is not on the page", q)
		}
	}
}

// absent are metrics of upstream's of which docs/user/top.md says that there are none here.
var absent = []string{
	"koordlet_container_core_sched_cookie", "koordlet_core_sched_cookie_manage_status", "koordlet_container_oom_score_adj",
	"koordlet_runtime_hook_invoked_duration_milliseconds", "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds",
	"koordlet_resctrl_memory_bandwidth",
}

// Each metric that the manual names is one: of the reference, or of koord-manager, which has its names in the code. One that the page says to
// be absent is.
func TestManualNamesMetricsThatAre(t *testing.T) {
	t.Parallel()
	pages := manuals(t)
	all, _ := texts(t)
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(pages["docs/reference/metrics.md"], -1) {
		names = append(names, m[1])
	}
	for text := range all {
		if strings.HasPrefix(text, "koord_rt_manager_") || strings.HasPrefix(text, "koord_manager_") {
			names = append(names, text)
		}
	}
	name := regexp.MustCompile("`((?:koord_rt|koord_manager|koordlet)_[a-z0-9_]+)([…*`{ ]?)")
	found := map[string]bool{}
	for path, text := range pages {
		if !strings.HasPrefix(path, filepath.Join("docs", "user")) {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
			family := m[2] == "…" || m[2] == "*" || strings.HasSuffix(m[1], "_") // what some names begin with
			is := slices.ContainsFunc(names, func(n string) bool { return n == m[1] || family && strings.HasPrefix(n, m[1]) })
			if is == slices.Contains(absent, m[1]) {
				t.Errorf("%s: %s: a metric: %v, said to be absent: %v", path, m[1], is, !is)
			}
		}
	}
	for _, n := range absent {
		if !found[n] {
			t.Errorf("%s is on no page", n)
		}
	}
	if len(found) < 40 {
		t.Errorf("only %d metrics were found", len(found))
	}
}
