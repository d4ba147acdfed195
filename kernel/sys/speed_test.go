// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
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
		files := map[string]string{}
		for file, text := range c.files {
			files["devices/system/cpu/"+file] = text
		}
		if fs := FS(kerneltest.Lay(t, files, "")); fs.HyperThreads() != c.threads || fs.Turbo() != c.turbo {
			t.Errorf("%s: hyper-threads %v, turbo %v", name, fs.HyperThreads(), fs.Turbo())
		}
	}
}
