// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import "testing"

func TestUnified(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		knob  Knob
		key   string
		value Value
		want  string // "file text", "" when it has no form
	}{
		"number":             {MemoryMin, "", Int(4096), "memory.min 4096"},
		"unlimited":          {MemoryHigh, "", Int(-1), "memory.high max"},
		"negative identity":  {CPUBvt, "", Int(-1), "cpu.bvt_warp_ns -1"},
		"min adj":            {MemoryWmarkMinAdj, "", Int(-1), "memory.wmark_min_adj -1"},
		"burst":              {CPUBurst, "", Int(20000), "cpu.max.burst 20000"},
		"burst has no max":   {CPUBurst, "", Int(-1), ""},
		"device":             {IOReadBPS, "8:0", Int(1048576), "io.max 8:0 rbps=1048576"},
		"device unlimited":   {IOWriteIOPS, "8:16", Int(-1), "io.max 8:16 wiops=max"},
		"device missing":     {IOReadBPS, "", Int(1), ""},
		"device name":        {IOReadBPS, "sda", Int(1), ""},
		"leading zeros":      {IOReadBPS, "08:0", Int(1), ""},
		"zeros":              {IOReadBPS, "8:00", Int(1), ""},
		"a sign":             {IOReadBPS, "+8:0", Int(1), ""},
		"device 0:0":         {IOReadBPS, "0:0", Int(1), "io.max 0:0 rbps=1"},
		"two lines in a key": {IOReadBPS, "8:0\n8:16", Int(1), ""},
		"weight":             {IOWeight, "8:0", Int(50), "io.weight 8:0 50"},
		"default weight":     {IOWeight, "", Int(50), "io.weight default 50"},
		"latency":            {IOLatency, "259:0", Int(75000), "io.latency 259:0 target=75000"},
		"OCI field":          {CPUShares, "", Int(1024), ""},
		"no cgroup file":     {OOMScoreAdj, "", Int(-500), ""},
		"text":               {MemoryMin, "", Text("1"), ""},
		"out of table":       {NumKnobs + 1, "", Int(1), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if key, value, ok := Unified(Setting{Knob: tt.knob, Key: tt.key, Value: tt.value}); ok {
				got = key + " " + value
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
