// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const head = "apiVersion: koord-rt.dev/v1alpha1\nkind: NRIConfig\n"

const slo = `apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: node-1}
spec:
  cpuBurstStrategy: {policy: auto}
`

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "strategy.yaml"), "cpuBurstStrategy: {policy: auto}\n")
	none := "strategyFile: " + filepath.Join(dir, "none") + "\n"
	for name, c := range map[string]struct {
		text, source, bad string
		inline            bool
	}{
		"config and file":  {head + "strategyFile: " + file, file, "", false},
		"NodeSLO alone":    {slo, "self", "", true},
		"nothing to apply": {head + none, "", "", false},
		"both in one":      {head + none + "---\n" + slo, "self", "", true},
		"unknown key":      {head + "sockett: /x\n", "", "sockett", false},
		"half written":     {head + "limits: {oomScore", "", "line", false},
		"bad strategy":     {head + "strategyFile: " + write(t, filepath.Join(dir, "bad.yaml"), "cpuBurstStrategy: {policy: sometimes}"), "", "policy", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, filepath.Join(t.TempDir(), "nri.yaml"), c.text)
			l, err := Load(path)
			if c.bad != "" {
				if err == nil || !strings.Contains(err.Error(), c.bad) {
					t.Errorf("error = %v, want one that names %q", err, c.bad)
				}
				return
			}
			if c.source == "self" {
				c.source = path
			}
			if err != nil || l.Source != c.source || l.Inline != c.inline || (l.Strategy != nil) != (c.source != "") {
				t.Errorf("loaded %+v, %v", l, err)
			}
		})
	}
	if _, err := Load(filepath.Join(dir, "absent.yaml")); err == nil {
		t.Error("a file that was asked for and is absent is an error")
	}
}
