//! Drives rskafka: commands, words and answers are those of bench/clients/with_program.py.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{stdin, BufRead};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::Error;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use rskafka::BackoffConfig;
use serde_json::{json, Value};

const PARTITIONS: i32 = 2;
const WITHIN: Duration = Duration::from_secs(30);

enum Failed {
    Lacks,
    By(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::By(error)
    }
}

type Found = Result<Value, Failed>;

/// Reads each partition of a topic where it stands.
struct Reader {
    topic: String,
    places: HashMap<i32, i64>,
    parts: Vec<PartitionClient>,
}

impl Reader {
    async fn new(client: &Client, topic: &str) -> Result<Self, Failed> {
        let parts = partitions(client, topic).await?;
        let places = (0..PARTITIONS).map(|part| (part, 0)).collect();
        Ok(Reader { topic: topic.to_owned(), places, parts })
    }

    async fn poll(&mut self, wait_ms: i32) -> Result<Vec<String>, Failed> {
        let mut found = vec![];
        for part in &self.parts {
            let place = self.places.entry(part.partition()).or_insert(0);
            let (records, _) = part.fetch_records(*place, 1..1_000_000, wait_ms / PARTITIONS).await?;
            for one in records {
                *place = one.offset + 1;
                let value = one.record.value.unwrap_or_default();
                found.push(String::from_utf8_lossy(&value).into_owned());
            }
        }
        Ok(found)
    }

    fn held(&self) -> Vec<(String, i32)> {
        (0..PARTITIONS).map(|part| (self.topic.clone(), part)).collect()
    }
}

async fn partitions(client: &Client, topic: &str) -> Result<Vec<PartitionClient>, Failed> {
    let mut made = vec![];
    for part in 0..PARTITIONS {
        made.push(client.partition_client(topic, part, UnknownTopicHandling::Retry).await?);
    }
    Ok(made)
}

fn now() -> DateTime<Utc> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    DateTime::from_timestamp_millis(since.as_millis() as i64).unwrap()
}

/// Values go to partitions in turn.
async fn write(parts: &[PartitionClient], values: &[String]) -> Found {
    for (number, part) in parts.iter().enumerate() {
        let own = values.iter().skip(number).step_by(parts.len());
        let records = own.map(|value| Record {
            key: Some(value.clone().into_bytes()),
            value: Some(value.clone().into_bytes()),
            headers: BTreeMap::new(),
            timestamp: now(),
        });
        part.produce(records.collect(), Compression::NoCompression).await?;
    }
    Ok(Value::Null)
}

async fn read(client: &Client, words: &[String]) -> Found {
    let mut reader = Reader::new(client, &words[0]).await?;
    let until = Instant::now() + Duration::from_secs_f64(words[1].parse().unwrap());
    let mut left: HashSet<&String> = words[2..].iter().collect();
    let mut found = vec![];
    while !left.is_empty() && Instant::now() < until {
        for value in reader.poll(500).await? {
            left.remove(&value);
            found.push(value);
        }
    }
    Ok(json!(found))
}

async fn ends(client: &Client, topics: &[String]) -> Found {
    let mut found = HashMap::new();
    for topic in topics {
        for part in partitions(client, topic).await? {
            *found.entry(topic).or_insert(0) += part.get_offset(OffsetAt::Latest).await?;
        }
    }
    Ok(json!(found))
}

async fn once(client: &Client, command: &str, words: &[String]) -> Found {
    match command {
        // It does not tell brokers.
        "look" => {
            let names = client.list_topics().await?.into_iter().map(|topic| topic.name);
            Ok(json!([names.collect::<Vec<_>>(), 0]))
        }
        // All its producers ask for acks=all.
        "produce" if words[1] == "all" && words[2] == "false" => {
            write(&partitions(client, &words[0]).await?, &words[3..]).await
        }
        "read" => read(client, words).await,
        "create" => {
            client.controller_client()?.create_topic(&words[0], 1, 1, 30_000).await?;
            Ok(Value::Null)
        }
        "ends" => ends(client, words).await,
        _ => Err(Failed::Lacks),
    }
}

fn answer(found: Found) {
    let said = match found {
        Ok(found) => json!({ "found": found }),
        Err(Failed::Lacks) => json!({ "lacks": "this client has no such thing" }),
        Err(Failed::By(error @ Error::ServerError { .. })) => json!({ "refused": error.to_string() }),
        Err(Failed::By(error)) => json!({ "wrong": error.to_string() }),
    };
    println!("{said}");
}

fn asked() -> impl Iterator<Item = Vec<String>> {
    let lines = stdin().lock().lines().map_while(Result::ok);
    lines.map(|line| line.split(' ').map(str::to_owned).collect())
}

async fn member(client: &Client, words: &[String]) -> Result<(), Failed> {
    if !words[0].is_empty() {
        return Err(Failed::Lacks);
    }
    let mut reader = Reader::new(client, &words[3]).await?;
    answer(Ok(Value::Null));
    for line in asked() {
        answer(match line[0].as_str() {
            "commit" => Ok(Value::Null),
            _ => reader.poll(line[1].parse().unwrap()).await.map(|values| json!([values, reader.held()])),
        });
    }
    Ok(())
}

async fn writer(client: &Client, words: &[String]) -> Result<(), Failed> {
    if !words[1].is_empty() {
        return Err(Failed::Lacks);
    }
    let parts = partitions(client, &words[0]).await?;
    answer(Ok(Value::Null));
    for values in asked() {
        answer(write(&parts, &values).await);
    }
    Ok(())
}

async fn run(command: &str, bootstrap: &str, words: &[String]) -> Result<(), Failed> {
    let backoff = BackoffConfig { deadline: Some(WITHIN), max_backoff: Duration::from_secs(1), ..Default::default() };
    let client = ClientBuilder::new(vec![bootstrap.to_owned()]).backoff_config(backoff).build().await?;
    match command {
        "member" => member(&client, words).await,
        "writer" => writer(&client, words).await,
        _ => {
            answer(once(&client, command, words).await);
            Ok(())
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&words[0], &words[1], &words[2..]).await {
        answer(Err(error));
    }
}
