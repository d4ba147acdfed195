// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft_test

import (
	"math"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/draft"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

func TestFeatures(t *testing.T) {
	t.Parallel()
	v, p := pt.View(), pt.Pod(protocol.QoSLS)
	v.Modes[protocol.FeatureLLC] = node.Off
	v.Modes[protocol.FeatureMemory] = node.Observe
	p.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureDevices)
	active, planned := draft.Features(v, p)
	without := protocol.AllFeatures.Without(protocol.FeatureLLC).Without(protocol.FeatureDevices)
	if planned != without || active != without.Without(protocol.FeatureMemory) {
		t.Errorf("active %s planned %s", active, planned)
	}
}

func TestPinClass(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		label protocol.QoS
		kube  protocol.KubeQoS
		cpus  string
		want  protocol.QoS
	}{
		{protocol.QoSBE, protocol.KubeGuaranteed, "0", protocol.QoSBE},
		{protocol.QoSNone, protocol.KubeGuaranteed, "", protocol.QoSLS},
		{protocol.QoSNone, protocol.KubeBurstable, "0", protocol.QoSLSR},
		{protocol.QoSNone, protocol.KubeBestEffort, "", protocol.QoSBE},
		{protocol.QoSNone, protocol.KubeUnknown, "", protocol.QoSLS},
	} {
		p := pt.Pod(tc.label)
		p.KubeQoS = tc.kube
		p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: tc.cpus}
		if got := draft.PinClass(p); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

func TestTightAtTheEdges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		minimum, limit unit.Bytes
		want           bool
	}{{90, 100, false}, {91, 100, true}, {100, 100, true}, {1, 0, false}, {0, 100, false}, {math.MaxInt64, math.MaxInt64, true}} {
		if got := draft.Tight(tc.minimum, tc.limit); got != tc.want {
			t.Errorf("Tight(%d, %d) = %v", tc.minimum, tc.limit, got)
		}
	}
}

func TestClipIsSafe(t *testing.T) {
	t.Parallel()
	long := ""
	for range 1000 {
		long += "\x00\u00e9"
	}
	got := draft.Clip(long)
	if len(got) > 150 {
		t.Errorf("%d bytes", len(got))
	}
	for _, r := range got {
		if r < ' ' || r > '~' {
			t.Fatalf("control or foreign character %q in %q", r, got)
		}
	}
}
