// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSpeed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files          map[string]string
		threads, turbo bool
	}{
		"guest":           {nil, false, false},
		"Intel":           {map[string]string{"smt/active": "1\n", "intel_pstate/no_turbo": "0\n"}, true, true},
		"Intel, no turbo": {map[string]string{"smt/active": "0\n", "intel_pstate/no_turbo": "1\n", "cpufreq/boost": "1\n"}, false, false},
		"AMD":             {map[string]string{"smt/active": "1\n", "cpufreq/boost": "1\n"}, true, true},
		"AMD, no boost":   {map[string]string{"cpufreq/boost": "0\n"}, false, false},
		"garbage":         {map[string]string{"smt/active": "yes\n", "cpufreq/boost": "\n"}, false, false},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(dir, "devices/system/cpu", file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if fs := FS(dir); fs.HyperThreads() != c.threads || fs.Turbo() != c.turbo {
			t.Errorf("%s: hyper-threads %v, turbo %v", name, fs.HyperThreads(), fs.Turbo())
		}
	}
}
