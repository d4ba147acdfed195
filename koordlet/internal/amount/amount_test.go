// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package amount

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want Amounts
		err  bool
	}{
		"nothing":              {`{}`, Amounts{}, false},
		"plain":                {`{"cpu":"500m","memory":"2Gi","ephemeral-storage":"1Gi","hugepages-2Mi":"4Mi","pods":"110"}`, Amounts{CPU: 500, Memory: 2 << 30}, false},
		"numbers":              {`{"cpu":2,"memory":1000}`, Amounts{CPU: 2000, Memory: 1000}, false},
		"batch":                {`{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"1Gi"}`, Amounts{BatchCPU: 1500, BatchMemory: 1 << 30}, false},
		"mid":                  {`{"kubernetes.io/mid-cpu":"2k","kubernetes.io/mid-memory":"1"}`, Amounts{MidCPU: 2000, MidMemory: 1}, false},
		"deprecated batch":     {`{"koordinator.sh/batch-cpu":"700"}`, Amounts{BatchCPU: 700}, false},
		"both names":           {`{"koordinator.sh/batch-cpu":"700","kubernetes.io/batch-cpu":"800"}`, Amounts{BatchCPU: 800}, false},
		"devices":              {`{"nvidia.com/gpu":"2","koordinator.sh/gpu-core":"50"}`, Amounts{Devices: map[string]int64{"nvidia.com/gpu": 2, "koordinator.sh/gpu-core": 50}}, false},
		"one cannot be read":   {`{"cpu":"many","memory":"1Ki"}`, Amounts{Memory: 1024}, true},
		"none can be read":     {`{"cpu":null,"memory":{"a":1},"nvidia.com/gpu":[]}`, Amounts{}, true},
		"negative and too big": {`{"cpu":"-1","memory":"16Ei"}`, Amounts{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list List
			if err := json.Unmarshal([]byte(c.in), &list); err != nil {
				t.Fatal(err)
			}
			got, err := Parse(list)
			if (err != nil) != c.err {
				t.Errorf("error %v", err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	a := Amounts{CPU: 1000, BatchCPU: 200, Memory: 5, Devices: map[string]int64{"gpu": 1}}
	b := Amounts{CPU: 500, MidCPU: 300, Memory: math.MaxInt64, Devices: map[string]int64{"gpu": 1, "rdma": 50}}
	want := Amounts{CPU: 1500, BatchCPU: 200, MidCPU: 300, Memory: math.MaxInt64, Devices: map[string]int64{"gpu": 2, "rdma": 50}}
	if d := cmp.Diff(want, a.Plus(b)); d != "" {
		t.Error(d)
	}
	want = Amounts{CPU: 1000, BatchCPU: 200, MidCPU: 300, Memory: math.MaxInt64, Devices: map[string]int64{"gpu": 1, "rdma": 50}}
	if d := cmp.Diff(want, a.Max(b)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]int64{"gpu": 1}, a.Devices); d != "" {
		t.Errorf("the summand changed: %s", d)
	}
	if got := a.Plus(b).AnyCPU(); got != 2000 {
		t.Errorf("any CPU %d", got)
	}
	if got := (Amounts{Memory: math.MaxInt64, BatchMemory: 1}).AnyMemory(); got != math.MaxInt64 {
		t.Errorf("any memory %d", got)
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for m, want := range map[unit.MilliCPU]string{0: "0", 1: "1m", 1000: "1", 64000: "64", 1500: "1500m"} {
		got := FormatCPU(m)
		if back, err := strategy.ParseMilli(got); got != want || err != nil || back != int64(m) {
			t.Errorf("%d: %s (%d %v), want %s", m, got, back, err, want)
		}
	}
	for b, want := range map[unit.Bytes]string{
		0: "0", 1000: "1000", 1024: "1Ki", 1536 << 20: "1536Mi", 64 << 30: "64Gi", 1 << 60: "1Ei", math.MaxInt64: "9223372036854775807",
	} {
		got := FormatMemory(b)
		if back, err := strategy.ParseQuantity(got); got != want || err != nil || back != int64(b) {
			t.Errorf("%d: %s (%d %v), want %s", b, got, back, err, want)
		}
	}
}

// FuzzParse: any JSON object gives amounts that are not negative.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"cpu":"500m","memory":"2Gi","kubernetes.io/batch-cpu":"1500","nvidia.com/gpu":2}`))
	f.Add([]byte(`{"cpu":"1e30","memory":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var list List
		if json.Unmarshal(data, &list) != nil {
			return
		}
		a, _ := Parse(list)
		for name, n := range a.Devices {
			if n < 0 {
				t.Fatalf("%s is %d", name, n)
			}
		}
		if min(a.CPU, a.BatchCPU, a.MidCPU) < 0 || min(a.Memory, a.BatchMemory, a.MidMemory) < 0 || len(a.Devices) > maxDevices {
			t.Fatalf("%+v", a)
		}
		if p := a.Plus(a); p.CPU < a.CPU || p.Memory < a.Memory || p.AnyCPU() < a.CPU {
			t.Fatalf("%+v twice is %+v", a, p)
		}
	})
}
