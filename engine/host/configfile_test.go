// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
)

const configHead = "apiVersion: koord-rt.dev/v1alpha1\nkind: KoordletConfig\n"

// TestConfigFile: of a configuration that is edited the strategy is put in force, every other key is told once by its name, and so is a file that a
// start would refuse. What says the same in other words is no news.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	auto, none := "strategy: {cpuBurstStrategy: {policy: auto}}\n", "strategy: {cpuBurstStrategy: {policy: none}}\n"
	for name, tc := range map[string]struct {
		first   string
		steps   []string
		want    []string // problems
		wantSet []string // policies
		waits   bool     // something is not in force at the end
	}{
		"another strategy": {first: auto, steps: []string{none, none + "# reworded\n"}, wantSet: []string{"none"}},
		"other keys": {
			first: auto, steps: []string{auto + "pprof: true\ncollect: {interval: 2s}\n", auto + "collect: {interval: 2000ms}\npprof: true\n"},
			want: []string{"collect.interval, pprof: changed in the file, and taken in by a restart only"}, waits: true,
		},
		"other keys, and another strategy": {
			first: auto + "features: {cpu-burst: off}\n", steps: []string{none},
			want: []string{"features.cpu-burst: changed in the file, and taken in by a restart only"}, wantSet: []string{"none"}, waits: true,
		},
		"there and back, and there": {
			first: auto, steps: []string{auto + "pprof: true\n", auto, auto + "pprof: true\n"},
			want: []string{"pprof: changed in the file, and taken in by a restart only", "pprof: changed in the file, and taken in by a restart only"}, waits: true,
		},
		"a default that is written out": {first: auto, steps: []string{auto + "pprof: false\n"}},
		"strategy goes":                 {first: auto, steps: []string{"pprof: false\n"}, want: []string{"strategy: the file holds none any more: the last one holds"}, waits: true},
		"strategy comes": {
			first: "pprof: false\n", steps: []string{auto, "pprof: true\n" + auto},
			want: []string{
				"strategy: the file holds one, and did not at the start: taken in by a restart only",
				"strategy: the file holds one, and did not at the start: taken in by a restart only\npprof: changed in the file, and taken in by a restart only",
			}, waits: true,
		},
		"broken, and mended": {
			first: auto, steps: []string{"pprof: maybe\n", none},
			want: []string{`the last good one holds, and a start would be refused: load configuration: `}, wantSet: []string{"none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "koordlet.yaml")
			put(t, path, configHead+tc.first)
			l, err := Load(path, Document[config.Koordlet]{
				Path: path, Default: config.DefaultKoordlet(), Parse: config.LoadKoordlet, Node: func(c *config.Koordlet) *config.Node { return &c.Node },
			})
			if err != nil {
				t.Fatal(err)
			}
			var problems, set []string
			f := &configFile{path: path, again: l.Again, log: slog.New(slog.DiscardHandler), problem: func(_ string, err error) { problems = append(problems, err.Error()) }}
			if l.Inline {
				f.strategy = &strategyFile{path: path, log: f.log, holds: l.Strategy, set: func(s *strategy.Spec, _ string) { set = append(set, *s.CPUBurstStrategy.Policy) }}
			}
			f.look()
			for _, text := range tc.steps {
				put(t, path, configHead+text)
				f.look()
				f.look()
			}
			if !slices.EqualFunc(problems, tc.want, func(got, want string) bool { return got[:min(len(got), len(want))] == want }) {
				t.Errorf("problems\n%q\nwant\n%q", problems, tc.want)
			}
			if waits := f.waiting() != ""; waits != tc.waits {
				t.Errorf("waiting at the end: %q", f.waiting())
			}
			if fmt.Sprint(set) != fmt.Sprint(tc.wantSet) {
				t.Errorf("set %q, want %q", set, tc.wantSet)
			}
		})
	}
}
