// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package logs

// Keys of log attributes. Messages are constant; what varies stands under these names.
const (
	KeyComponent  = "component"
	KeyError      = "err"
	KeyEvent      = "event"
	KeyPod        = "pod"       // namespace/name
	KeyPodUID     = "podUID"    // metadata.uid
	KeyContainer  = "container" // name
	KeyID         = "id"        // container or sandbox id
	KeyFeature    = "feature"
	KeyKnob       = "knob"
	KeyKey        = "key" // label, annotation or configuration key
	KeyReason     = "reason"
	KeyWant       = "want"
	KeyHave       = "have"
	KeyFile       = "file"
	KeyGeneration = "generation"
	KeyDuration   = "duration"
	KeyCount      = "count"
	KeySuppressed = "suppressed" // equal messages held back since the last
	KeyVersion    = "version"
	KeyRuntime    = "runtime"
	KeyNRI        = "nri"
	KeyAddress    = "address"
)
