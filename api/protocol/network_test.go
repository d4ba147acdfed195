// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

func TestNetworkQOS(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]protocol.NetworkQOS{
		`{}`: {},
		`{"ingressLimit":"50M","egressLimit":"20M"}`: {IngressLimit: 50_000_000, EgressLimit: 20_000_000}, // koordinator-node.md §1.6
		`{"egressLimit":"1Gi"}`:                      {EgressLimit: 1 << 30},
		`{"ingressLimit":1000000,"other":true}`:      {IngressLimit: 1_000_000},
		`{"ingressLimit":null}`:                      {},
	} {
		if got, err := protocol.ParseNetworkQOS(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for in, why := range map[string]string{
		``:                        "want a JSON object",
		`[]`:                      "want a JSON object",
		`{"ingressLimit":"fast"}`: "bad quantity",
		`{"ingressLimit":"-1M"}`:  "negative",
		`{"egressLimit":"0"}`:     "egressLimit: 0 bit/s would stop the pod",
		`{"egressLimit":"50"}`:    "egressLimit: 50 bit/s would stop the pod",
		`{"egressLimit":{}}`:      "",
	} {
		if got, err := protocol.ParseNetworkQOS(in); err == nil || !strings.Contains(err.Error(), why) || got != (protocol.NetworkQOS{}) {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	ask, problems := protocol.ParsePod(nil, map[string]string{protocol.AnnotationNetworkQOS: `{"egressLimit":"1"}`})
	if ask.Network != nil || len(problems) != 1 || problems[0].Key != protocol.AnnotationNetworkQOS {
		t.Errorf("%+v, %v", ask.Network, problems)
	}
	if ask, problems = protocol.ParsePod(whole()); ask.Network == nil || ask.Network.EgressLimit != 20_000_000 || len(problems) > 0 {
		t.Errorf("%+v, %v", ask.Network, problems)
	}
}

func FuzzNetworkQOS(f *testing.F) {
	f.Add(`{"ingressLimit":"64k","egressLimit":"9E"}`)
	fuzz(f, protocol.AnnotationNetworkQOS, func(in string) (protocol.NetworkQOS, error) {
		q, err := protocol.ParseNetworkQOS(in)
		if q.IngressLimit < 0 || q.EgressLimit < 0 || q.IngressLimit > 0 && q.IngressLimit < protocol.MinNetworkLimit {
			panic(in)
		}
		return q, err
	}, nil)
}
