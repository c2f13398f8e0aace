//! Compile options, as a serialized `xla.CompileOptionsProto`.

use crate::value::Value;

/// How to compile a program.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// Replicas of the program that run in parallel, each on its own data.
    pub num_replicas: i64,
    /// Partitions of the program, by its sharding annotations.
    pub num_partitions: i64,
    /// The device to compile for, or -1 for any.
    pub device_ordinal: i64,
    /// Whether one executable runs on any device. Only for one replica and one partition.
    pub portable: bool,
    /// Global ids of the devices, ordered by replica and then partition. If empty, the plugin chooses.
    pub device_assignment: Vec<i64>,
    /// XLA's flags for this program alone, by name: `("xla_cpu_enable_fast_math", Value::Bool(true))`.
    /// Lists are not allowed.
    pub overrides: Vec<(String, Value)>,
}

impl Default for CompileOptions {
    /// One portable program.
    fn default() -> Self {
        Self {
            num_replicas: 1,
            num_partitions: 1,
            device_ordinal: -1,
            portable: true,
            device_assignment: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

impl CompileOptions {
    /// A program with this many replicas, which may communicate.
    pub fn replicated(num_replicas: i64) -> Self {
        Self { num_replicas, portable: num_replicas == 1, ..Self::default() }
    }

    /// A program with a replica on each of these devices, by their global ids.
    #[must_use]
    pub fn on_devices(self, devices: &[i64]) -> Self {
        let num_replicas = devices.len() as i64;
        Self { num_replicas, portable: false, device_assignment: devices.to_vec(), ..self }
    }

    /// The serialized `CompileOptionsProto`. Equal options give equal bytes, so it can be part of a cache key.
    pub fn encode(&self) -> Vec<u8> {
        let mut build = Message::default();
        build.int(1, self.device_ordinal);
        build.int(4, self.num_replicas);
        build.int(5, self.num_partitions);
        if self.num_partitions > 1 {
            build.int(6, 1); // use_spmd_partitioning
        }
        if !self.device_assignment.is_empty() {
            build.message(9, &self.encode_device_assignment());
        }

        let mut options = Message::default();
        options.message(3, &build); // executable_build_options
        if self.portable {
            options.int(4, 1); // compile_portable_executable
        }
        for (name, value) in &self.overrides {
            let mut field = Message::default();
            match value {
                Value::Str(value) => field.bytes(1, value.as_bytes()),
                Value::Bool(value) => field.int(2, (*value).into()),
                Value::Int(value) => field.int(3, *value),
                Value::Float(value) => field.double(4, (*value).into()),
                Value::Ints(_) => continue,
            }
            let mut entry = Message::default();
            entry.bytes(1, name.as_bytes());
            entry.message(2, &field);
            options.message(7, &entry); // env_option_overrides
        }
        options.0
    }

    /// A `DeviceAssignmentProto`: for each partition, the devices of its replicas.
    fn encode_device_assignment(&self) -> Message {
        let partitions = usize::try_from(self.num_partitions).unwrap_or(1).max(1);
        let mut assignment = Message::default();
        assignment.int(1, self.num_replicas);
        assignment.int(2, self.num_partitions);
        for partition in 0..partitions {
            let mut devices = Message::default();
            for device in self.device_assignment.iter().skip(partition).step_by(partitions) {
                devices.int(1, *device);
            }
            assignment.message(3, &devices);
        }
        assignment
    }
}

/// A protobuf message being written, with the three kinds of fields that the options need.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(&mut self, field: u64, value: i64) {
        self.varint(field << 3);
        self.varint(value as u64);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn message(&mut self, field: u64, value: &Self) {
        self.bytes(field, &value.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_in_bytes() {
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let mut expected = vec![0x1a, 15, 0x08];
        expected.extend(minus_one);
        expected.extend([0x20, 1, 0x28, 1, 0x20, 1]);
        assert_eq!(CompileOptions::default().encode(), expected);
    }

    #[test]
    fn overrides_in_bytes() {
        let options = CompileOptions {
            device_ordinal: 0,
            overrides: vec![("a".into(), Value::Bool(true)), ("b".into(), Value::Int(300))],
            ..CompileOptions::default()
        };
        let expected = [
            0x1a, 6, 0x08, 0, 0x20, 1, 0x28, 1, 0x20, 1, //
            0x3a, 7, 0x0a, 1, b'a', 0x12, 2, 0x10, 1, //
            0x3a, 8, 0x0a, 1, b'b', 0x12, 3, 0x18, 0xac, 2,
        ];
        assert_eq!(options.encode(), expected);
    }
}
