// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// roundTrip checks one parser: nothing with an error, and what is written reads back equal.
func roundTrip[T any](t *testing.T, in string, parse func(string) (T, error), format func(T) string) {
	t.Helper()
	got, err := parse(in)
	if err != nil {
		var zero T
		if !reflect.DeepEqual(got, zero) {
			t.Fatalf("%q: partial result %+v with %v", in, got, err)
		}
		return
	}
	if format == nil {
		return
	}
	text := format(got)
	if len(text) > protocol.MaxValueBytes {
		return // written longer than it was read: escapes, quantities in base units
	}
	again, err := parse(text)
	if err != nil {
		t.Fatalf("%q: written as %q, refused: %v", in, text, err)
	}
	if !reflect.DeepEqual(got, again) {
		t.Fatalf("%q: %+v written as %q reads as %+v", in, got, text, again)
	}
	if second := format(again); second != text {
		t.Fatalf("%q: written as %q, then as %q", in, text, second)
	}
}

// fuzz runs roundTrip on the example of key and a few that every parser must survive.
func fuzz[T any](f *testing.F, key string, parse func(string) (T, error), format func(T) string) {
	f.Helper()
	if key != "" {
		_, annotations := whole()
		f.Add(annotations[key])
	}
	for _, seed := range []string{"", "null", "{}", "[]", "{", `{"":{}}`, `{"a":null}`, "\x00", "1", "true", "a,b", "0-3,8"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) { roundTrip(t, in, parse, format) })
}

func FuzzExtendedResource(f *testing.F) {
	fuzz(f, protocol.AnnotationExtendedResource, protocol.ParseExtendedResource, protocol.FormatExtendedResource)
}

func FuzzResourceStatus(f *testing.F) {
	f.Add(`{"numaNodeResources":[{"node":1,"resources":{}},{"node":0,"resources":null}]}`)
	f.Add(`{"numaNodeResources":[{"node":1,"resources":{"cpu":null}}]}`)
	fuzz(f, protocol.AnnotationResourceStatus, protocol.ParseResourceStatus, protocol.FormatResourceStatus)
}

func FuzzDeviceAllocated(f *testing.F) {
	f.Add(`{"gpu":[{"minor":0,"resources":{"cpu":2.5},"extension":{}}],"fpga":null}`)
	fuzz(f, protocol.AnnotationDeviceAllocated, protocol.ParseDeviceAllocated, protocol.FormatDeviceAllocated)
}

func FuzzResctrl(f *testing.F) {
	fuzz(f, protocol.AnnotationResctrl, protocol.ParseResctrl, protocol.FormatResctrl)
}

func FuzzApplied(f *testing.F) {
	f.Add(`{"gen":3,"by":"koord-nri/1.0","set":{"cpu.shares":"512 batch","memory.high":"<max> memory-qos"}}`)
	f.Add(`{"base":{}}`)
	f.Add(`{"set":{"a":"` + strings.Repeat("\xff", 22000) + `"}}`)
	fuzz(f, "", protocol.ParseApplied, protocol.FormatApplied)
}

func FuzzCPUBurst(f *testing.F) {
	fuzz(f, protocol.AnnotationCPUBurst, protocol.ParseCPUBurst, nil)
}

func FuzzCPUQOS(f *testing.F) { fuzz(f, protocol.AnnotationCPUQOS, protocol.ParseCPUQOS, nil) }

func FuzzMemoryQOS(f *testing.F) {
	fuzz(f, protocol.AnnotationMemoryQOS, protocol.ParseMemoryQOS, nil)
}

func FuzzBlkIO(f *testing.F) { fuzz(f, protocol.AnnotationBlkIOQOS, protocol.ParseBlkIO, nil) }

func FuzzOOMScoreAdj(f *testing.F) {
	fuzz(f, protocol.AnnotationOOMScoreAdj, protocol.ParseOOMScoreAdj, nil)
}

func FuzzOOMScoreAdjSpec(f *testing.F) {
	fuzz(f, protocol.AnnotationOOMScoreAdjSpec, protocol.ParseOOMScoreAdjSpec, nil)
}

func FuzzCPUList(f *testing.F) {
	fuzz(f, "", func(s string) (string, error) {
		if err := protocol.CheckCPUList(s); err != nil {
			return "", err
		}
		return s, nil
	}, func(s string) string { return s })
}

// FuzzParsePod puts one value under every key.
func FuzzParsePod(f *testing.F) {
	labels, annotations := whole()
	for _, m := range []map[string]string{labels, annotations} {
		for _, value := range m {
			f.Add(value)
		}
	}
	f.Fuzz(func(t *testing.T, value string) {
		labels, annotations := whole()
		for key := range labels {
			labels[key] = value
		}
		for key := range annotations {
			annotations[key] = value
		}
		ask, problems := protocol.ParsePod(labels, annotations)
		for _, p := range problems {
			checkReason(t, p)
		}
		again, second := protocol.ParsePod(labels, annotations)
		if !reflect.DeepEqual(problems, second) || !reflect.DeepEqual(ask, again) {
			t.Fatalf("%v then %v", problems, second)
		}
	})
}

// An empty map says as little as none.
func TestAppliedEmptyMaps(t *testing.T) {
	t.Parallel()
	got, err := protocol.ParseApplied(`{"set":{},"base":{}}`)
	if err != nil || !reflect.DeepEqual(got, protocol.Applied{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFormatExamples(t *testing.T) {
	t.Parallel()
	shares, set := int64(500), map[string]string{"memory.high": "1073741824 memory-qos", "cpu.shares": "512 batch"}
	for _, c := range []struct{ got, want string }{
		{
			protocol.FormatApplied(protocol.Applied{Generation: 7, By: "koord-nri/0.1", Set: set}),
			`{"gen":7,"by":"koord-nri/0.1","set":{"cpu.shares":"512 batch","memory.high":"1073741824 memory-qos"}}`,
		},
		{
			protocol.FormatExtendedResource(map[string]protocol.ExtendedContainer{"a": {Requests: protocol.ExtendedResources{BatchCPU: &shares}}}),
			`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`,
		},
		{protocol.FormatResourceStatus(protocol.ResourceStatus{CPUSet: "0-3"}), `{"cpuset":"0-3"}`},
		{
			protocol.FormatDeviceAllocated(map[string][]protocol.DeviceAllocation{"gpu": {{Minor: 2, Resources: map[string]int64{protocol.ResourceGPUCore: 100}}}}),
			`{"gpu":[{"minor":2,"resources":{"koordinator.sh/gpu-core":"100"}}]}`,
		},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func FuzzSystemQoS(f *testing.F) {
	f.Add(`{"cpuset":"0-1","cpusetExclusive":false}`)
	f.Add(`{"cpuset":"1-0"}`)
	fuzz(f, "", protocol.ParseSystemQoS, nil)
}

func FuzzNodeReservation(f *testing.F) {
	f.Add(`{"resources":{"cpu":"1500m"},"reservedCPUs":"0-1,8","applyPolicy":"Default"}`)
	fuzz(f, "", protocol.ParseNodeReservation, nil)
}

func FuzzNormalizationRatio(f *testing.F) {
	f.Add("1.20")
	f.Add("-1")
	f.Add("NaN")
	f.Fuzz(func(t *testing.T, in string) {
		if r, err := protocol.ParseNormalizationRatio(in); r < 0 || r > 10000 || err != nil && r != 0 {
			t.Fatalf("%q: %d, %v", in, r, err)
		}
	})
}
