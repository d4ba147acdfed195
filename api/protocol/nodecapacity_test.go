// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

const yarn = `{"allocations":[{"name":"hadoop-yarn","priority":"koord-batch",` +
	`"resources":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi","nvidia.com/gpu":"1"}},{"priority":"koord-mid"}]}`

func TestParseThirdParty(t *testing.T) {
	t.Parallel()
	got, err := protocol.ParseThirdParty(yarn)
	want := []protocol.ThirdParty{
		{Name: "hadoop-yarn", Priority: protocol.PriorityBatch, Batch: protocol.BatchAmounts{MilliCPU: 1000, Memory: 1 << 30}},
		{Priority: protocol.PriorityMid},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := protocol.ParseThirdParty(""); got != nil || err != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	for text, part := range map[string]string{
		"bad-format": "object", `{"allocations":[{"name":"a","priority":"high"}]}`: "priority",
		`{"allocations":[{"name":"a","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"-1"}}]}`: "negative",
	} {
		if got, err := protocol.ParseThirdParty(text); err == nil || !strings.Contains(err.Error(), part) || got != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestOriginExtended(t *testing.T) {
	t.Parallel()
	const text = `{"resources":{"kubernetes.io/batch-cpu":"25000","kubernetes.io/batch-memory":"33000000000"}}`
	amounts := protocol.BatchAmounts{MilliCPU: 25000, Memory: 33e9}
	if got := protocol.FormatOriginExtended(amounts); got != text {
		t.Errorf("written %s", got)
	}
	if got, err := protocol.ParseOriginExtended(text); err != nil || got != amounts {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestParseReservedMemory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"": 0, `{}`: 0, `{"resources":{"cpu":"2"}}`: 0, `{"resources":{"memory":"2Gi"},"reservedCPUs":"0-1"}`: 2 << 30,
	} {
		if got, err := protocol.ParseReservedMemory(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	if got, err := protocol.ParseReservedMemory(`{"resources":{"memory":"-2"}}`); err == nil || got != 0 {
		t.Errorf("%d, %v", got, err)
	}
}

func TestParseCPUBasicInfo(t *testing.T) {
	t.Parallel()
	got, err := protocol.ParseCPUBasicInfo(`{"cpuModel":"XXX","hyperThreadEnabled":true,"catL3CbmMask":"7ff"}`)
	if want := (protocol.CPUBasicInfo{Model: "XXX", HyperThread: true}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := protocol.ParseCPUBasicInfo(`{"cpuModel":1}`); err == nil || !strings.Contains(err.Error(), "cpuModel") {
		t.Error(err)
	}
}

func TestFormatAmplification(t *testing.T) {
	t.Parallel()
	if got := protocol.FormatAmplification(map[string]int64{"memory": 105, "cpu": 150}); got != `{"cpu":1.50,"memory":1.05}` {
		t.Error(got)
	}
}

func FuzzThirdParty(f *testing.F) {
	f.Add(yarn)
	fuzz(f, "", protocol.ParseThirdParty, nil)
}

func FuzzOriginExtended(f *testing.F) {
	f.Add(`{"resources":{"kubernetes.io/batch-cpu":"25000"}}`)
	fuzz(f, "", protocol.ParseOriginExtended, protocol.FormatOriginExtended)
}

func FuzzReservedMemory(f *testing.F) {
	f.Add(`{"resources":{"memory":"2Gi"}}`)
	fuzz(f, "", protocol.ParseReservedMemory, nil)
}

func FuzzCPUBasicInfo(f *testing.F) {
	f.Add(`{"cpuModel":"XXX","hyperThreadEnabled":true}`)
	fuzz(f, "", protocol.ParseCPUBasicInfo, nil)
}
